"""Records the traces of two ranks of a DDP program over gloo. The argument is the output directory."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

WIDTH, LAYERS, STEPS = 256, 4, 3


def main(directory: Path) -> None:
    """Train some steps, and export the trace of this rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))), bucket_cap_mb=0.3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    activities, plan = [ProfilerActivity.CPU], schedule(wait=1, warmup=1, active=STEPS)
    with profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        for _ in range(2 + STEPS):
            net(torch.randn(64, WIDTH)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(str(directory / f"rank{dist.get_rank()}.json"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
