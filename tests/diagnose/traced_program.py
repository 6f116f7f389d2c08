"""Program that records traces of two ranks over gloo. Arguments: a program of PROGRAMS, and the output directory."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from traced_sizes import LAYERS, MICRO_BATCHES, ROWS, STEPS, WIDTH

Pass = Callable[[], None]


def build() -> nn.Sequential:
    """Return the undivided model."""
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def train_whole(net: nn.Module) -> tuple[nn.Module, Pass]:
    """Return a model, and its forward and backward pass."""
    return net, lambda: net(torch.randn(ROWS, WIDTH)).sum().backward()


def ddp() -> tuple[nn.Module, Pass]:
    """Gradients are reduced in buckets."""
    return train_whole(DistributedDataParallel(build(), bucket_cap_mb=0.3))


def fsdp() -> tuple[nn.Module, Pass]:
    """Each layer is sharded."""
    net, mesh = build(), init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return train_whole(net)


def tensor() -> tuple[nn.Module, Pass]:
    """Layers are split alternately by columns and by rows."""
    net, mesh = build(), init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    plans = {str(k): ColwiseParallel() if k % 2 == 0 else RowwiseParallel() for k in range(LAYERS)}
    parallelize_module(net, mesh, plans)
    return train_whole(net)


def pipeline() -> tuple[nn.Module, Pass]:
    """Two stages with half of the layers each."""
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (2,), mesh_dim_names=("pp",))
    net = build()[: LAYERS // 2]
    stage = PipelineStage(net, rank, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    gpipe = ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=lambda y, t: (y - t).square().mean())
    batch = torch.randn(ROWS, WIDTH)
    first, last = (lambda: gpipe.step(batch), lambda: gpipe.step(target=batch))
    return net, last if rank else first


PROGRAMS = {"ddp": ddp, "fsdp": fsdp, "tensor": tensor, "pipeline": pipeline}


def main(program: str, directory: Path) -> None:
    """Train some steps, and export the trace of this rank."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    net, run = PROGRAMS[program]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    activities, plan = [ProfilerActivity.CPU], schedule(wait=1, warmup=1, active=STEPS)
    with profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        for _ in range(2 + STEPS):
            run()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(str(directory / f"rank{dist.get_rank()}.json"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
