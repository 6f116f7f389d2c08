"""Process groups whose descriptions do not identify the dimension: from frameworks, unnamed meshes and layouts."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from gradient_sums import by_framework
from interposing import interposed, settings
from pytorch_programs import model, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from hpcbench.contract.interpose import Axis, Groups


def ddp_over(ranks: list[int] | None) -> None:
    group = dist.new_group(ranks, use_local_synchronization=True)
    train(DistributedDataParallel(model(), process_group=group), dist.get_rank())


def fsdp1_over_a_group() -> None:
    cpu, group = torch.device("cpu"), dist.new_group()
    net = FullyShardedDataParallel(model(), process_group=group, use_orig_params=True, device_id=cpu)
    train(net, dist.get_rank())


def zero_of_deepspeed() -> None:
    group = dist.new_group()

    def reduce(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x, group=group)
        return x

    by_framework("deepspeed", "average_tensor", reduce)(torch.randn(4096))


def torchtitan() -> None:
    """Use FSDP over a dimension that spans an entire mesh and is named `world`."""
    world = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("world",))
    mesh = world._unflatten(0, (dist.get_world_size(),), ("fsdp",))
    train(fully_shard(model(), mesh=mesh["fsdp"]), dist.get_rank())


def fsdp2_without_a_mesh() -> None:
    train(fully_shard(model()), dist.get_rank())


def tensor_parallel_without_names() -> list[float]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return train(parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}), 0)[0]


def picotron() -> None:
    """Use the default group for a pipeline, and sum gradients over replicas and positions."""
    rank = dist.get_rank()
    peer, x = rank ^ 2, torch.randn(4096)
    ops = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, torch.empty(4096), peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    pair = [rank & 2, rank & 2 | 1]
    train(DistributedDataParallel(model(), process_group=dist.new_group(pair, use_local_synchronization=True)), rank)


LAYOUT = Groups(
    min_bytes=1024,
    layout=[Axis(dimension="PP", size=2), Axis(dimension="DP", size=2), Axis(dimension="CP", size=1)],
)
USES: dict[str, tuple[Callable[[], Any], Groups]] = {
    "DDP over a group of all ranks": (lambda: ddp_over(None), Groups(min_bytes=1024)),
    "DDP over pairs": (lambda: ddp_over([dist.get_rank() & 2, dist.get_rank() & 2 | 1]), Groups(min_bytes=1024)),
    "FSDP1": (fsdp1_over_a_group, Groups(min_bytes=1024)),
    "DeepSpeed": (zero_of_deepspeed, Groups(min_bytes=1024)),
    "torchtitan": (torchtitan, Groups(min_bytes=1024)),
    "FSDP2": (fsdp2_without_a_mesh, Groups(min_bytes=1024)),
    "picotron": (picotron, LAYOUT),
}


def uses() -> dict[str, Any]:
    """Return the dimensions and calls that are encoded in each case, and the losses with a mesh without names."""
    report: dict[str, Any] = {}
    for name, (work, groups) in USES.items():
        _, rows = interposed(settings("int8:256", groups=groups), work)
        report[name] = sorted({(row["dimension"], row["call"]) for row in rows if row["codec"]})
    losses, rows = interposed(settings("int8:256"), tensor_parallel_without_names)
    report["unnamed"] = [losses, tensor_parallel_without_names(), sorted({row["dimension"] for row in rows})]
    return report
