"""Sums over replicas: gradient sums are encoded, and all other sums give the same result as without hpcbench."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from interposing import ASKED, interposed, settings
from pytorch_programs import model
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

Sum = Callable[[Tensor], Tensor]


def values(of: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(4096, generator=torch.Generator().manual_seed(of), dtype=dtype)


def summed(x: Tensor) -> Tensor:
    x = x.clone()
    dist.all_reduce(x)
    return x


def averaged(_: Tensor) -> Tensor:
    """Average parameters over the ranks, although they are identical on all ranks."""
    x = values(99)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    return x


def counted(_: Tensor) -> Tensor:
    x = torch.full((300, 300), 20_000.0)
    dist.all_reduce(x)
    return x


def smoothed(x: Tensor) -> Tensor:
    """After the step, sum an exponential moving average of the parameters over the ranks."""
    shadow = x * 0.999 + 0.001
    with torch.no_grad():
        return summed(shadow)


def scattered(x: Tensor) -> Tensor:
    out = torch.empty(x.numel() // dist.get_world_size())
    dist.reduce_scatter_tensor(out, x)
    return out


def of_lists(x: Tensor) -> Tensor:
    tensors = [x.clone(), x.clone()]
    dist.all_reduce_coalesced(tensors)
    return torch.cat(tensors)


def functionally(x: Tensor) -> Tensor:
    return functional.all_reduce(x, "sum", dist.group.WORLD).clone()


def of_complex(_: Tensor) -> Tensor:
    return summed(values(dist.get_rank(), torch.complex64))


def of_complex_in_inference(_: Tensor) -> Tensor:
    with torch.inference_mode():
        return of_complex(_)


def backward(work: Sum, x: Tensor) -> Tensor:
    """Run `work` inside a backward pass."""
    results: list[Tensor] = []
    leaf = torch.zeros(1, requires_grad=True)
    leaf.register_hook(lambda _: results.append(work(x)))
    leaf.sum().backward()
    return results[0]


def by_framework(package: str, function: str, work: Sum = summed) -> Sum:
    """Return a sum that is called from a function of another package. The package itself is not imported."""
    module = ModuleType(f"{package}.core")
    exec(f"def {function}(work, x):\n    return work(x)\n", module.__dict__)
    call: Callable[[Sum, Tensor], Tensor] = getattr(module, function)
    return lambda x: call(work, x)


EXACT: dict[str, Sum] = {
    "sum": summed,
    "average": averaged,
    "counts": counted,
    "moving average": smoothed,
    "scattered": scattered,
    "lists": of_lists,
    "functional": functionally,
    "complex": of_complex,
    "complex in inference": of_complex_in_inference,
    "complex in backward": lambda x: backward(of_complex, x),
    "function of a user": by_framework("mine", "allreduce_bucket"),
}
LOSSY: dict[str, Sum] = {
    "in backward": lambda x: backward(summed, x),
    "scattered in backward": lambda x: backward(scattered, x),
    "DeepSpeed": by_framework("deepspeed", "average_tensor"),
    "Megatron": by_framework("megatron", "finish_grad_sync"),
    "DiLoCo": by_framework("mine", "sync_pseudo_gradient"),
}


def uneven() -> list[float]:
    """Train with DDP's join, and return sums of the weights.

    A rank without data takes part in sums outside a backward pass.
    """
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with Join([net]):
        for _ in range(1 + dist.get_rank()):
            optimizer.zero_grad()
            net(torch.randn(8, 128)).square().mean().backward()
            optimizer.step()
    return [float(p.detach().double().sum()) for p in net.parameters()]


def pipeline_of_shards() -> None:
    """Train a two-stage pipeline of FSDP2 modules, which reduces gradients after the last backward pass."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    number = mesh.get_local_rank("pp")
    net = fully_shard(nn.Sequential(nn.Linear(128, 128), nn.Tanh()), mesh=mesh["dp"])
    stage = PipelineStage(net, number, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda y, t: (y - t).square().mean())
    x = torch.randn(8, 128)
    schedule.step(x) if number == 0 else schedule.step(target=x)


def sums() -> dict[str, Any]:
    """Return, for each sum, the largest difference from the exact result, and how the calls were executed."""
    asked, report = settings("int8:256"), {}
    x = values(dist.get_rank())
    for name, work in {**EXACT, **LOSSY}.items():
        plain = work(x)
        result, rows = interposed(asked, lambda work=work: work(x))
        difference = float((result - plain).abs().max())
        report[name] = [difference, sorted({(row["codec"], row["why"]) for row in rows})]
    opted, rows = interposed(settings("int8:256", groups=ASKED), lambda: summed(x))
    report["asked"] = [float((opted - summed(x)).abs().max()), sorted({(row["codec"], row["why"]) for row in rows})]
    weights, rows = interposed(settings(dp="int8:256"), uneven)
    report["join"] = [weights, sorted({row["codec"] for row in rows if row["call"] == "all-reduce"})]
    _, rows = interposed(settings(dp="int8:256"), pipeline_of_shards)
    report["pipeline of shards"] = sorted({row["codec"] for row in rows if row["call"] == "reduce-scatter"})
    return report
