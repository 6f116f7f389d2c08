"""A script of somebody who has never heard of hpcbench."""

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
net = torch.nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
odd = dist.new_group(list(range(dist.get_world_size())), group_desc="odd one")
torch.manual_seed(dist.get_rank())
for step in range(3):
    optimizer.zero_grad()
    loss = (net(torch.randn(8, 128)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"step {step} loss {mean.item() / dist.get_world_size():.9f}", flush=True)
dist.all_reduce(torch.ones(40_000), group=odd)
dist.barrier()
dist.destroy_process_group()
