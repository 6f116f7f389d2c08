"""Worker with two gloo ranks whose groups report the backend NCCL, so that whole collectives are used.

python streamed_worker.py OUT
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from interposing import ASKED, SMALL, interposed, settings
from pytorch_programs import PROGRAMS

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.plan import Operation, lay_out
from hpcbench.comm.topology import Topology
from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.traffic import Algorithm
from hpcbench.programs import backends
from hpcbench.programs.collective_carrier import count_padding
from hpcbench.programs.tensors import DTYPES
from hpcbench.torch.ddp_hook import compressed

RANKS = 2
NAMES = ("ddp", "ddp in bf16", "ddp compiled", "fsdp1", "fsdp2", "tensor parallel", "sequence parallel", "pipeline")
"""Programs that run on two ranks."""
GATHERED = Groups(min_bytes=1024, lossy=["parameters", "functional-gathers"])


def scheme(codec: str, algorithm: str = "encoded", groups: Groups = SMALL, **rule: Any) -> Interposition:
    named = NamedScheme(name="test", algorithm=algorithm, default=codec, rules=[])
    return Interposition(scheme=named, groups=groups, out="nowhere")


def count_planned(row: dict[str, Any]) -> list[int]:
    """Return the message bytes and wire bytes that plans predict for the calls of a row on this rank."""
    dtype = next(d for t, d in DTYPES.items() if str(t) == f"torch.{row['dtype']}")
    message = wire = 0
    for n, calls in row["sizes"].items():
        operation = {"functional gather": Operation.ALL_GATHER}.get(row["call"]) or Operation(row["call"])
        topology = Topology.flat(RANKS)
        plan = lay_out(operation, n, dtype, topology, get_codec(row["codec"]), Algorithm.TWO_SHOT, 1, root=0)
        message += calls * plan.message_bytes(dist.get_rank())
        wire += calls * (plan.wire_bytes(dist.get_rank()) + count_padding(plan, dist.get_rank()))
    return [message, wire]


def run_program(name: str, asked: Interposition | None) -> dict[str, Any]:
    (losses, parameters), rows = interposed(asked, PROGRAMS[name])
    for row in rows:
        if row["codec"] and row["call"] != "all-to-all":
            row["plan"] = count_planned(row)
    digest = hashlib.sha256(parameters.numpy().tobytes()).hexdigest()
    return {"losses": losses, "digest": digest, "rows": rows}


def programs() -> dict[str, Any]:
    report = {}
    for name in NAMES:
        report[f"{name}, plain"] = run_program(name, None)
        report[f"{name}, int8"] = run_program(name, scheme("int8:256", groups=GATHERED))
    for codec in ("none", "bf16", "zfp:8"):
        report[f"ddp, {codec}"] = run_program("ddp", scheme(codec))
    return report


def refusals() -> dict[str, Any]:
    """Run programs with schemes that the NCCL carrier does not support, and return the reported reasons."""

    def reasons(name: str, asked: Interposition) -> list[str]:
        rows = run_program(name, asked)["rows"]
        return sorted({row["why"] for row in rows if row["why"] not in ("small", "type", "operation")})

    between = NamedScheme(
        name="test",
        algorithm="hierarchical",
        default="none",
        rules=[Rule(dimension="DP", codec="int8:256", between_nodes=True)],
    )
    return {
        "xpk": reasons("ddp", scheme("xpk")),
        "mpc": reasons("ddp", scheme("mpc")),
        "auto": reasons("ddp", scheme("int8:256", "auto")),
        "ring": reasons("ddp", scheme("int8:256", "ring")),
        "between nodes": reasons("ddp", Interposition(scheme=between, groups=SMALL, out="nowhere")),
        "pipeline": reasons("pipeline", scheme("int8:256")),
        "dry": reasons("ddp", scheme("int8:256").model_copy(update={"dry": True})),
        "dry xpk": reasons("ddp", scheme("xpk").model_copy(update={"dry": True})),
        "baseline": reasons("ddp", scheme("none", "native")),
    }


def calls() -> dict[str, float]:
    """Run each kind of call once. Return the largest errors relative to the largest value."""
    rank, n = dist.get_rank(), 8192
    group = dist.new_group(list(range(RANKS)), group_desc="mesh_ep")

    def values(of: int) -> torch.Tensor:
        return torch.randn(n, generator=torch.Generator().manual_seed(of))

    every = [values(r) for r in range(RANKS)]
    total, mine, half = torch.stack(every).sum(0), every[rank], slice(rank * n // RANKS, (rank + 1) * n // RANKS)
    errors: dict[str, float] = {}

    def check(name: str, got: torch.Tensor, exact: torch.Tensor) -> None:
        errors[name] = float((got - exact).abs().max() / exact.abs().max())

    def work() -> None:
        x = mine.reshape(64, 128).t().contiguous().t()  # not contiguous
        dist.all_reduce(x, group=group)
        check("all-reduce of another layout", x.reshape(-1), total)
        x = mine.clone()
        dist.all_reduce(x, dist.ReduceOp.AVG, group=group)
        check("average", x, total / RANKS)
        several = [mine.clone(), mine.clone() * 2]
        handle = dist.all_reduce(several[0], group=group, async_op=True)
        second = dist.all_reduce(several[1], group=group, async_op=True)
        second.wait(timedelta(seconds=30))
        handle.wait()
        check("two at once", torch.cat(several), torch.cat([total, 2 * total]))
        out = torch.empty(n // RANKS)
        dist.reduce_scatter_single(out, mine, group=group)
        check("reduce-scatter", out, total[half])
        dist.reduce_scatter(out, list(mine.chunk(RANKS)), dist.ReduceOp.AVG, group=group)
        check("reduce-scatter of lists", out, total[half] / RANKS)
        joined = torch.empty(RANKS * n)
        dist.all_gather_single(joined, mine, group=group)
        check("all-gather", joined, torch.cat(every))
        parts = [torch.empty(n) for _ in range(RANKS)]
        dist.all_gather(parts, mine, group=group)
        check("all-gather of lists", torch.cat(parts), torch.cat(every))
        dist.all_to_all_single(exchanged := torch.empty(n), mine, group=group)
        check("all-to-all", exchanged, torch.cat([x[half] for x in every]))
        cut = [6000, 2192] if rank == 0 else [192, 8000]
        sizes = [6000, 192] if rank == 0 else [2192, 8000]
        out = torch.empty(sum(sizes))
        dist.all_to_all_single(out, mine, sizes, cut, group=group)
        expected = [every[0][:6000], every[1][:192]] if rank == 0 else [every[0][6000:], every[1][192:]]
        check("all-to-all of unequal parts", out, torch.cat(expected))
        from torch.distributed._functional_collectives import all_reduce

        check("functional", all_reduce(mine, "sum", group) + 0, total)

    _, rows = interposed(settings("int8:256", groups=ASKED), work)
    errors["exact calls"] = float(sum(row["calls"] for row in rows if not row["codec"]))
    return errors


def hook() -> dict[str, Any]:
    """Return DDP losses with PyTorch's communication hook, with intercepted calls, and without compression."""
    from pytorch_programs import model, train
    from torch.nn.parallel import DistributedDataParallel

    def train_ddp(*, hooked: bool) -> list[float]:
        net = DistributedDataParallel(model(), bucket_cap_mb=0.1)
        if hooked:
            net.register_comm_hook(None, compressed("int8:256", min_bytes=1024))  # type: ignore[arg-type]
        return train(net, dist.get_rank())[0]

    kernels, _ = interposed(settings(dp="int8:256"), lambda: train_ddp(hooked=False))
    return {"hook": train_ddp(hooked=True), "kernels": kernels, "plain": train_ddp(hooked=False)}


def fsdp2_objects() -> dict[str, Any]:
    """Return FSDP2 losses with custom communication objects over both carriers, and with intercepted calls."""
    from pytorch_programs import model, train
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from hpcbench.torch.fsdp import CompressedAllGather, CompressedReduceScatter

    def train_fsdp2(codec: str | None, min_bytes: int = 1024) -> list[Any]:
        net = model()
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
        for layer in net:
            fully_shard(layer, mesh=mesh)
            if codec:
                layer.set_custom_reduce_scatter(CompressedReduceScatter(codec, min_bytes=min_bytes))
                layer.set_custom_all_gather(CompressedAllGather(codec, min_bytes=min_bytes))
        losses, parameters = train(net, dist.get_rank())
        return [losses, hashlib.sha256(parameters.numpy().tobytes()).hexdigest()]

    asked = scheme("int8:256", groups=Groups(min_bytes=1024, lossy=["parameters"]))
    report = {"kernels": interposed(asked, lambda: train_fsdp2(None))[0]}
    report |= {"objects": train_fsdp2("int8:256"), "plain": train_fsdp2(None)}
    report |= {"small": train_fsdp2("int8:256", 1 << 30), "none": train_fsdp2("none")}
    claimed, backends.find_backend = backends.find_backend, lambda group, device: "gloo"
    report["gloo"] = train_fsdp2("int8:256")
    backends.find_backend = claimed
    return report


PARTS: dict[str, Callable[[], Any]] = {
    "calls": calls,
    "programs": programs,
    "refusals": refusals,
    "hook": hook,
    "fsdp2": fsdp2_objects,
}


def rank(number: int, directory: Path) -> None:
    """Run one rank. This function never returns."""
    status = 1
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{directory / 'store'}",
            rank=number,
            world_size=RANKS,
            timeout=timedelta(seconds=90),
        )
        backends.find_backend = lambda group, device: backends.NCCL
        every: list[Any] = [None] * RANKS
        dist.all_gather_object(every, {name: part() for name, part in PARTS.items()})
        if number == 0:
            (directory / "ranks.json").write_text(json.dumps(every), encoding="utf-8")
        dist.barrier()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> int:
    torch.set_num_threads(1)
    directory = Path(sys.argv[1])
    ranks = []
    for number in range(RANKS):
        pid = os.fork()
        if pid == 0:
            rank(number, directory)
        ranks.append(pid)
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in ranks)


sys.exit(main())
