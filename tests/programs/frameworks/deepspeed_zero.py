"""Perceptron trained with DeepSpeed ZeRO: deepspeed_zero.py STAGE. The worker prints the losses and a digest of the
parameters."""

import hashlib
import json
import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3)
stage = int(sys.argv[1])
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
settings = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    "zero_force_ds_cpu_optimizer": False,
}
deepspeed.init_distributed("gloo")
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.Adam(net.parameters(), lr=1e-3), config=settings)
generator = torch.Generator().manual_seed(dist.get_rank())
losses = []
for _ in range(4):
    x = torch.randn(8, 64, generator=generator)
    loss = (engine(x) - x.roll(1, 1)).square().mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
with deepspeed.zero.GatheredParameters(list(net.parameters()), enabled=stage == 3):
    flat = torch.cat([p.detach().reshape(-1).float() for p in net.parameters()])
digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
print("result " + json.dumps({"rank": dist.get_rank(), "losses": losses, "digest": digest}), flush=True)
dist.barrier()
