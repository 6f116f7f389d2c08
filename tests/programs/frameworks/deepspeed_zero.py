"""Perceptron trained with DeepSpeed ZeRO of stage 1, then of stage 3. The worker prints the losses and a digest of the
parameters."""

import hashlib
import json

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3)
# Otherwise, each process would search for compilers, and compile an extension that training over Gloo does not use.
deepspeed.ops.__compatible_ops__ = {}
deepspeed.init_distributed("gloo")
generator = torch.Generator().manual_seed(dist.get_rank())
losses, digest = [], hashlib.sha256()
for stage in (1, 3):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    settings = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=settings)
    for _ in range(4):
        x = torch.randn(8, 64, generator=generator)
        loss = (engine(x) - x.roll(1, 1)).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    with deepspeed.zero.GatheredParameters(list(net.parameters()), enabled=stage == 3):
        for p in net.parameters():
            digest.update(p.detach().float().numpy().tobytes())
print("result " + json.dumps({"rank": dist.get_rank(), "losses": losses, "digest": digest.hexdigest()}), flush=True)
dist.barrier()
