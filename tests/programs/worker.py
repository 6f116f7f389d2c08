"""Worker that runs all programs in all modes, single calls and faults. Ranks are forked, so torch is imported once.

    python worker.py OUT [TRIES]

The worker writes ranks.json and faults.json into the directory OUT. With TRIES, the worker runs only the faults, TRIES
times.
"""

import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from decisions import automatic, late_mesh, tried
from gradient_sums import sums
from group_uses import uses
from interposing import ASKED, RANKS, SMALL, interposed, settings
from program_faults import Played
from pytorch_programs import PROGRAMS, model, train
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.plan import Operation
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.topology import Topology
from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.traffic import Algorithm
from hpcbench.programs.link_speed import GUESS
from hpcbench.programs.tensors import DTYPES
from hpcbench.torch.ddp_hook import compressed

AT_ONCE = 2
"""Number of concurrent tries of the faults."""


NATIVE = Interposition(scheme=NamedScheme(name="baseline", algorithm="native"), groups=SMALL, out="nowhere")
MODES: dict[str, Interposition | None] = {
    "plain": None,
    "interposed": NATIVE,
    "int8 on dp": settings(dp="int8:256"),
    "hybrid": settings("xpk", "int8:256"),
}


def by_the_plan(row: dict[str, Any]) -> list[int]:
    """Return the message bytes and wire bytes that plans predict for the calls of a row on this rank."""
    p, message, wire = row["ranks"], 0, 0
    dtype = next(d for t, d in DTYPES.items() if str(t) == f"torch.{row['dtype']}")
    operation = Operation(row["call"])
    for n, calls in row["sizes"].items():
        half = dtype.itemsize == 2 and operation is not Operation.ALL_GATHER
        codec = get_codec(row["codec"])
        asked = Request(operation, n, dtype, Topology.flat(p), codec, Algorithm.ENCODED, feedback=half)
        laid = plan(asked, GUESS)
        place = dist.get_rank() % p  # in all plans here, every rank sends the same number of bytes
        message += calls * laid.message_bytes(place)
        wire += calls * laid.wire_bytes(place)
    return [message, wire]


def programs() -> dict[str, Any]:
    outcomes: dict[str, Any] = {}
    for name, program in PROGRAMS.items():
        for mode, asked in MODES.items():
            try:
                (losses, parameters), rows = interposed(asked, program)
            except Exception:
                outcomes[f"{name}, {mode}"] = {"error": traceback.format_exc()}
                break
            digest = hashlib.sha256(parameters.numpy().tobytes()).hexdigest()
            for row in rows:
                if row["codec"].startswith("int8") and row["call"] != "point to point":
                    row["plan"] = by_the_plan(row)
            outcomes[f"{name}, {mode}"] = {"losses": losses, "digest": digest, "rows": rows}
    return outcomes


def calls() -> dict[str, Any]:
    """Run each kind of call with fixed-size and variable-size codecs.

    Return the largest errors relative to the largest value.
    """
    rank, p, n = dist.get_rank(), dist.get_world_size(), 4096
    results: dict[str, Any] = {}
    stages = dist.new_group(list(range(p)), group_desc="mesh_pp")

    def values(of: int, dtype: torch.dtype, count: int = n) -> torch.Tensor:
        return torch.randn(count, generator=torch.Generator().manual_seed(of)).to(dtype)

    def error(got: torch.Tensor, exact: torch.Tensor) -> float:
        return float((got.double() - exact.double()).abs().max() / exact.double().abs().max())

    def work(dtype: torch.dtype) -> dict[str, float]:
        every = [values(r, dtype) for r in range(p)]
        total = torch.stack([x.double() for x in every]).sum(0)
        mine, part = every[rank], slice(rank * n // p, (rank + 1) * n // p)
        errors = {}
        for op, share in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, p)):
            x = mine.clone()
            dist.all_reduce(x, op)
            errors[f"all-reduce {op}"] = error(x, total / share)
            out = torch.empty(n // p, dtype=dtype)
            dist.reduce_scatter_single(out, mine.clone(), op)
            errors[f"reduce-scatter {op}"] = error(out, (total / share)[part])
        out = torch.empty(p * n, dtype=dtype)
        dist.all_gather_single(out, mine)
        errors["all-gather"] = error(out, torch.cat(every))
        parts = [torch.empty(n, dtype=dtype) for _ in range(p)]
        dist.all_gather(parts, mine)
        errors["all-gather of a list"] = error(torch.cat(parts), torch.cat(every))
        largest = mine.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        errors["maximum"] = error(largest, torch.stack(every).amax(0))
        numbers = torch.arange(n) * (rank + 1)
        dist.all_reduce(numbers)
        errors["integers"] = float((numbers - torch.arange(n) * (p * (p + 1) // 2)).abs().max())
        peer, before = (rank + 1) % p, (rank - 1) % p
        got = torch.empty(n, dtype=dtype)
        sent = dist.isend(mine, peer, group=stages)
        dist.recv(got, before, group=stages)
        sent.wait()
        errors["point to point"] = error(got, every[before])
        return errors

    for codec in ("int8:256", "xpk"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            asked = settings(codec, groups=ASKED)
            try:
                errors, rows = interposed(asked, lambda dtype=dtype: work(dtype))
            except Exception:
                results[f"{codec}, {dtype}"] = {"error": traceback.format_exc()}
                continue
            results[f"{codec}, {dtype}"] = {"errors": errors, "rows": rows}
    return results


def exchange() -> dict[str, Any]:
    """Exchange values in an expert group with all-to-all, in equal and unequal parts."""
    rank, p, width = dist.get_rank(), dist.get_world_size(), 64
    group = dist.new_group(list(range(p)), group_desc="mesh_ep")

    def work() -> list[float]:
        errors = []
        for rows in ([8] * p, [4 * (r + 1) for r in range(p)]):
            src = torch.full((sum(rows), width), float(rank + 1)) + torch.linspace(0, 1, width)
            mine = rows[rank]
            out = torch.empty(mine * p, width)
            dist.all_to_all_single(out, src, [mine] * p, rows, group=group)
            exact = torch.repeat_interleave(torch.arange(1.0, p + 1), mine)[:, None] + torch.linspace(0, 1, width)
            errors.append(float((out - exact).abs().max()))
        return errors

    errors, rows = interposed(settings("int8:256", groups=Groups(min_bytes=1024)), work)
    return {"errors": errors, "rows": rows}


def feedback(*, lost: bool) -> float:
    """Return the error of the mean of many sums of the same values, with the sign codec.

    The error decreases only if residuals are kept.
    """
    from hpcbench.comm.feedback import Feedback
    from hpcbench.programs import residuals

    x = torch.randn(4096, generator=torch.Generator().manual_seed(7))
    buffer = torch.empty_like(x)
    residual_of = residuals.Residuals.of
    if lost:
        residuals.Residuals.of = lambda self, operation, tensor: Feedback(tensor.numel())  # type: ignore[method-assign]

    def work() -> torch.Tensor:
        total = torch.zeros_like(x)
        for _ in range(30):
            buffer.copy_(x)
            dist.all_reduce(buffer, dist.ReduceOp.AVG)
            total += buffer
        return total / 30

    try:
        mean, _ = interposed(settings(dp="sign:1024", groups=ASKED, feedback=True), work)
    finally:
        residuals.Residuals.of = residual_of  # type: ignore[method-assign]
    return float((mean - x).norm() / x.norm())


def batched(*, undecoded: bool) -> float:
    """Return the largest error of messages sent around a ring.

    Each rank sends and receives in one batch, as pipelines do.
    """
    from hpcbench.programs import messages

    rank, p = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(list(range(p)), group_desc="mesh_pp")
    x, got = (torch.randn(4096, generator=torch.Generator().manual_seed(r)) for r in (rank, (rank - 1) % p))
    expected = got.clone()
    got.zero_()
    real = messages.receive_message

    def planted(tensor: torch.Tensor, codec: Any, receive: Any, account: Any, row: Any) -> Any:
        inbox = torch.empty(codec.wire_bytes(tensor.numel(), DTYPES[tensor.dtype]), dtype=torch.uint8)
        return receive(inbox)

    def work() -> float:
        ops = [dist.P2POp(dist.isend, x, (rank + 1) % p, group), dist.P2POp(dist.irecv, got, (rank - 1) % p, group)]
        for handle in dist.batch_isend_irecv(ops):
            handle.wait()
        return float((got - expected).abs().max())

    messages.receive_message = planted if undecoded else real
    try:
        return float(interposed(settings("int8:256"), work)[0])
    finally:
        messages.receive_message = real


def train_ddp(prepare: Callable[[nn.Module], None] = lambda net: None) -> tuple[list[float], torch.Tensor]:
    net = DistributedDataParallel(model(), bucket_cap_mb=0.1)
    prepare(net)
    return train(net, dist.get_rank())


def hook() -> dict[str, Any]:
    """Return DDP losses with int8 in PyTorch's communication hook, with intercepted calls, and without compression."""

    def hooked(net: nn.Module) -> None:
        net.register_comm_hook(None, compressed("int8:256", min_bytes=1024))  # type: ignore[operator]

    by_hook, _ = train_ddp(hooked)
    (by_kernels, _), _ = interposed(settings(dp="int8:256"), train_ddp)
    plain, _ = train_ddp()
    small, _ = train_ddp(lambda net: net.register_comm_hook(None, compressed("int8:256", min_bytes=1 << 30)))  # type: ignore[operator]
    return {"hook": by_hook, "kernels": by_kernels, "plain": plain, "small": small}


def checkpoint(*, lossy: bool) -> float:
    """Return the largest change of a weight after FSDP2 has sharded the weights and a state dict has gathered them."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    opted: list[Any] = ["functional-gathers", "parameters"] if lossy else []

    def work() -> float:
        torch.manual_seed(3)
        net = nn.Linear(128, 128)
        weight = net.weight.detach().clone()
        return float((fully_shard(net, mesh=mesh).state_dict()["weight"].full_tensor() - weight).abs().max())

    change, _ = interposed(settings("int8:256", groups=Groups(min_bytes=1024, lossy=opted)), work)
    return float(change)


def timed() -> list[float]:
    """Return the errors raised by encoded sums if the wait timeout is sufficient, and if it is too short."""
    x = torch.ones(4096)
    late = dist.get_rank() == 0

    def work() -> float:
        handle = dist.all_reduce(x, async_op=True)
        assert handle.wait(timedelta(seconds=60))
        return float((x - dist.get_world_size()).abs().max())

    def too_late() -> float:
        if late:
            time.sleep(1)
        handle = dist.all_reduce(x, async_op=True)
        try:
            handle.wait(timedelta(seconds=0.2 if not late else 60))
        except RuntimeError as error:
            handle.wait()
            return float("did not finish within 0.2 s" in str(error))
        return float(late)

    error, _ = interposed(settings("int8:256", groups=ASKED), work)
    x.fill_(1)
    timeout, _ = interposed(settings("int8:256", groups=ASKED), too_late)
    return [float(error), float(timeout)]


def rank(number: int, ranks: int, directory: Path) -> None:
    """Run one rank. This function never returns."""
    status = 1
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{directory / 'store'}",
            rank=number,
            world_size=ranks,
            timeout=timedelta(seconds=90),
        )
        report = {
            "programs": programs(),
            "calls": calls(),
            "exchange": exchange(),
            "batched": [batched(undecoded=False), batched(undecoded=True)],
            "hook": hook(),
            "checkpoint": [checkpoint(lossy=False), checkpoint(lossy=True)],
            "late mesh": late_mesh(),
            "automatic": automatic(),
            "tried": tried(),
            "sums": sums(),
            "uses": uses(),
            "timed": timed(),
            "feedback": [feedback(lost=False), feedback(lost=True)],
        }
        every: list[Any] = [None] * ranks
        dist.all_gather_object(every, report)
        if number == 0:
            (directory / "ranks.json").write_text(json.dumps(every), encoding="utf-8")
        dist.barrier()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> int:
    directory = Path(sys.argv[1])
    if len(sys.argv) > 2:
        reports = []
        for first in range(0, int(sys.argv[2]), AT_ONCE):  # the ranks mostly wait for each other
            tries = range(first, min(first + AT_ONCE, int(sys.argv[2])))
            reports += [played.outcomes() for played in [Played(directory / str(k)) for k in tries]]
        (directory / "faults.json").write_text(json.dumps(reports), encoding="utf-8")
        return 0
    if torch.version.cuda is None:  # PyTorch for CUDA starts threads for autograd, which a fork does not copy
        torch.set_num_threads(1)
        torch.compile(nn.Linear(2, 2), backend="aot_eager")(torch.ones(2)).sum().backward()  # its imports, once for all
    played = Played(directory / "faults")
    ranks = []
    for number in range(RANKS):
        pid = os.fork()
        if pid == 0:
            rank(number, RANKS, directory)
        ranks.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    (directory / "faults.json").write_text(json.dumps(played.outcomes()), encoding="utf-8")
    return max(map(abs, statuses))


sys.exit(main())
