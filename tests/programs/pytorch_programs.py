"""PyTorch programs without references to hpcbench.

Each program trains for a few steps and returns losses and parameters. All programs run in one process group of four
ranks, because importing torch takes longer than running them.
"""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH, STEPS = 128, 8, 3

Result = tuple[list[float], Tensor]


def model(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)).to(
        dtype
    )


def batches(place: int, dtype: torch.dtype = torch.float32) -> Iterator[Tensor]:
    torch.manual_seed(100 + place)
    for _ in range(STEPS):
        yield torch.randn(BATCH, WIDTH).to(dtype)


def gather_full(parameter: Tensor) -> Tensor:
    values = parameter.detach()
    return values.full_tensor() if isinstance(values, DTensor) else values


def train(net: nn.Module, place: int, dtype: torch.dtype = torch.float32) -> Result:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for x in batches(place, dtype):
        optimizer.zero_grad()
        loss = (net(x).float() - x.float().roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, torch.cat([gather_full(p).reshape(-1).float() for p in net.parameters()])


def ddp() -> Result:
    return train(DistributedDataParallel(model(), bucket_cap_mb=0.1), dist.get_rank())


def ddp_half() -> Result:
    return train(DistributedDataParallel(model(torch.bfloat16)), dist.get_rank(), torch.bfloat16)


def ddp_compiled() -> Result:
    return train(DistributedDataParallel(torch.compile(model(), backend="aot_eager")), dist.get_rank())


def fsdp1() -> Result:
    net = FullyShardedDataParallel(model(), use_orig_params=True, device_id=torch.device("cpu"))
    losses, _ = train(net, dist.get_rank())
    with FullyShardedDataParallel.summon_full_params(net):
        return losses, torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def fsdp2() -> Result:
    net = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    return train(fully_shard(net, mesh=mesh), dist.get_rank())


def hsdp() -> Result:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    return train(fully_shard(model(), mesh=mesh), dist.get_rank())


def tensor_parallel() -> Result:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(net, 0)


def sequence_parallel() -> Result:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    plan = {
        "0": ColwiseParallel(),
        "2": RowwiseParallel(output_layouts=Shard(0)),
        "3": SequenceParallel(sequence_dim=0, use_local_output=False),
    }
    net = parallelize_module(model(), mesh, plan)

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            out = self.net(x)
            return out.full_tensor() if isinstance(out, DTensor) else out

    return train(Joined(), 0)


def tensor_and_data() -> Result:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    net = parallelize_module(model(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(fully_shard(net, mesh=mesh["dp"]), mesh.get_local_rank("dp"))


def pipeline() -> Result:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("pp",))
    rank, stages = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    stage = PipelineStage(net, rank, stages, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda y, t: (y - t).square().mean())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses: list[float] = []
    for x in batches(0):
        optimizer.zero_grad()
        last: list[Tensor] = []
        if rank == 0:
            schedule.step(x)
        elif rank == stages - 1:
            schedule.step(target=x.roll(1, 1), losses=last)
            losses.append(float(torch.stack(last).detach().mean()))
        else:
            schedule.step()
        optimizer.step()
    return losses, torch.cat([p.detach().reshape(-1) for p in net.parameters()])


PROGRAMS: dict[str, Callable[[], Result]] = {
    "ddp": ddp,
    "ddp in bf16": ddp_half,
    "ddp compiled": ddp_compiled,
    "fsdp1": fsdp1,
    "fsdp2": fsdp2,
    "hsdp": hsdp,
    "tensor parallel": tensor_parallel,
    "sequence parallel": sequence_parallel,
    "tp x fsdp2": tensor_and_data,
    "pipeline": pipeline,
}
REPLICAS = {"ddp", "ddp in bf16", "ddp compiled", "fsdp1", "fsdp2", "hsdp", "tensor parallel", "sequence parallel"}
"""Programs in which `train` returns the same parameters on every rank."""
