"""Compare PyTorch's collectives over gloo with hpcbench's replacements and with DDP's hooks, alternately in one run.

    python benchmarks/torch_collectives.py [--rates none 1gbit 200mbit 100mbit] [--bytes 65536 ...] [--repeats 9]
                                           [--ranks 4] [--modes ...] [--keep-memory] [--json FILE] [--tiny]

At rate none, the ranks are processes on this machine. At other rates, each rank is a virtual host behind a limited link
(hpcbench.testing.hosts: needs Linux, root or user namespaces, iproute2). Times are those of the slowest rank. Each
repeat measures all modes on the same values, in a different order. Ratios to plain gloo are paired by repeat, with 95 %
intervals. A target is met or missed only if the whole interval is on one side of the target. A target for "the slowest"
is met only if all rows to which it applies meet it.

Modes: `interposed` inspects calls and forwards them; `no codec` is hpcbench's algorithm alone; codecs have their own
names; `auto int8` may forward a call to gloo; `fp16 hook` and `PowerSGD hook` are DDP's hooks, on a bucket of the same
size. In each reduction, gloo allocates memory for a copy of the vector. The C library returns this memory to the system
in some modes but not in others. With --keep-memory, the memory is never returned. The exit status is 2 if a requirement
is missing.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # Registers the backend "fake".
from kept_memory import keep_memory
from provenance import head, provenance
from rich.console import Console
from tiny import parse
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch_targets import HANDED_ON, INTERPOSED, ONE_RANK, PLAIN, table, targets

from hpcbench.bench.machine import describe_machine
from hpcbench.console import columns
from hpcbench.contract.interpose import Groups, Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.errors import UserError
from hpcbench.programs.intercept import Interception
from hpcbench.testing.hosts import Hosts, why_not

SAMPLE_S = 0.1
"""Approximate time of the calls of one sample, in seconds."""


def asked(codec: str | None, algorithm: str = "encoded") -> Interposition:
    """Return settings with a codec for all sums and gathers, or None for kernels that forward all calls."""
    settings = (
        {"algorithm": "native", "default": "none"} if codec is None else {"algorithm": algorithm, "default": codec}
    )
    scheme = NamedScheme.model_validate({"name": "bench", **settings})
    groups = Groups(min_bytes=0, lossy=["parameters", "sums-outside-backward"])
    return Interposition(scheme=scheme, groups=groups, out="nowhere")


KERNELS: dict[str, Interposition] = {
    INTERPOSED: asked(None),
    "no codec": asked("none"),
    "bf16": asked("bf16"),
    "int8": asked("int8:256"),
    "zfp:8": asked("zfp:8"),
    "xpk": asked("xpk"),
    "auto int8": asked("int8:256", "auto"),
}
HOOKS = ("fp16 hook", "PowerSGD hook")
MODES = (PLAIN, *KERNELS, *HOOKS)
OPERATIONS = ("all-reduce", "reduce-scatter", "all-gather")


@dataclass
class Bucket:
    """The properties of a gradient bucket that DDP's hooks read."""

    values: torch.Tensor

    def buffer(self) -> torch.Tensor:
        """Return all gradients in one vector."""
        return self.values

    def gradients(self) -> list[torch.Tensor]:
        """Return one nearly square gradient, as for a linear layer."""
        side = 1 << ((self.values.numel().bit_length() - 1) // 2)
        return [self.values.view(side, -1)]

    def parameters(self) -> list[torch.Tensor]:
        """Return the weights, in the shape of the gradients."""
        return self.gradients()

    def index(self) -> int:
        """Return the index of the bucket."""
        return 0

    def is_last(self) -> bool:
        """Return whether this is the last bucket."""
        return True


Calls = dict[str, Callable[[], None]]


def operations(nbytes: int) -> tuple[Calls, Callable[[], None]]:
    """Return the calls on vectors of a size, and a function that restores the vectors.

    If the vectors were not restored, a lossless codec would compress them better after a lossy mode.
    """
    ranks = dist.get_world_size()
    full_vector, part = torch.randn(nbytes // 4), torch.randn(nbytes // 4 // ranks)
    first = full_vector.clone(), part.clone()

    def renew() -> None:
        full_vector.copy_(first[0])
        part.copy_(first[1])

    def all_reduce() -> None:
        dist.all_reduce(full_vector)
        full_vector.mul_(1 / ranks)  # The average, as for gradients, which gloo does not support.

    calls: Calls = {
        "all-reduce": all_reduce,
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(part, full_vector),
        "all-gather": lambda: dist.all_gather_into_tensor(full_vector, part),
    }
    return calls, renew


def hooks(nbytes: int) -> tuple[Calls, Callable[[], None]]:
    """Return the calls of DDP's hooks on a bucket of a size, and a function that restores the bucket."""
    bucket = Bucket(torch.randn(nbytes // 4))
    first = bucket.values.clone()
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    calls: Calls = {
        "fp16 hook": lambda: default_hooks.fp16_compress_hook(dist.group.WORLD, bucket).wait(),  # type: ignore[arg-type]
        "PowerSGD hook": lambda: powerSGD_hook.powerSGD_hook(state, bucket).wait(),  # type: ignore[arg-type]
    }

    def renew() -> None:
        bucket.values.copy_(first)

    return calls, renew


def seconds(call: Callable[[], None], count: int) -> float:
    """Return the time of a call on the slowest rank in seconds, after one untimed call that initializes the kernels."""
    if count:
        call()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    # A rank that only waits for others may be descheduled between two lines. This time is not part of a call.
    taken = torch.tensor([(time.perf_counter() - begin) / count if count else 0.0])
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken)


class Kernels(Protocol):
    """Context in which other kernels replace PyTorch's kernels."""

    def install(self) -> None:
        """Register the kernels."""

    def remove(self) -> None:
        """Unregister the kernels."""


def in_mode(
    mode: str,
    installed: Mapping[str, Kernels],
    call: Callable[[], None],
    count: int,
    renew: Callable[[], None] = lambda: None,
) -> float:
    """Return the time in seconds of a call in one mode, on new values."""
    kernels = installed.get(mode)
    renew()
    if kernels is None:
        return seconds(call, count)
    kernels.install()
    try:
        return seconds(call, count)
    finally:
        kernels.remove()


def measure(operation: str, nbytes: int, modes: list[str], repeats: int) -> dict[str, list[float]]:
    """Return the time of each repeat in seconds, by mode."""
    (every, renew), (hooked, renew_bucket) = operations(nbytes), hooks(nbytes)
    plain = every[operation]
    calls = {**dict.fromkeys(modes, plain), **{k: v for k, v in hooked.items() if k in modes}}
    if operation != "all-reduce":
        calls = {mode: call for mode, call in calls.items() if mode not in HOOKS}
    installed = {mode: Interception(KERNELS[mode]) for mode in calls if mode in KERNELS}
    count = max(1, min(50, int(SAMPLE_S / max(seconds(plain, 2), 1e-6))))
    times_of_modes: dict[str, list[float]] = {mode: [] for mode in calls}
    names = list(calls)
    for repeat in range(repeats + 1):
        # All ranks draw the same random order for each turn, because a mode changes caches and heap.
        for mode in Random(repeat).sample(names, len(names)):
            anew = renew_bucket if mode in HOOKS else renew
            taken = in_mode(mode, installed, calls[mode], count if repeat else 3, anew)
            if repeat:  # The first call creates groups and plans.
                times_of_modes[mode].append(taken)
    return times_of_modes


class HandedOn:
    """Python kernel that only forwards an all-reduce, which is the lower bound for Python kernels."""

    def install(self) -> None:
        """Register the kernel."""
        operator = torch.ops.c10d.allreduce_.default
        below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        self._library = torch.library.Library("c10d", "IMPL")
        self._library.impl(
            "allreduce_",
            lambda keys, *args: operator.redispatch(keys & below, *args),
            "BackendSelect",
            with_keyset=True,
        )

    def remove(self) -> None:
        """Unregister the kernel."""
        self._library._destroy()


def one_rank(repeats: int) -> dict[str, list[float]]:
    """Return the time of a call that sends nothing (plain, forwarded and interposed) on rank 0, in seconds.

    PyTorch's fake backend returns immediately, so only the cost of the call remains.
    """
    alone = dist.new_group([0], backend="fake")
    calls = 2000 if dist.get_rank() == 0 else 0
    value = torch.ones(1)
    installed = {HANDED_ON: HandedOn(), INTERPOSED: Interception(KERNELS[INTERPOSED])}
    times_of_modes: dict[str, list[float]] = {PLAIN: [], **{mode: [] for mode in installed}}
    for repeat in range(repeats + 1):
        for mode in list(times_of_modes)[:: 1 if repeat % 2 else -1]:
            taken = in_mode(mode, installed, lambda: dist.all_reduce(value, group=alone), calls)
            if repeat:
                times_of_modes[mode].append(taken)
    return times_of_modes


def work(directory: Path, rank: int) -> None:
    """Measure on one rank."""
    task = json.loads((directory / "task.json").read_text())
    torch.set_num_threads(1)
    if task["keep_memory"]:
        keep_memory()  # On a virtual host, each rank is a separate program.
    dist.init_process_group(
        "gloo",
        init_method=f"file://{directory / 'store'}",
        rank=rank,
        world_size=task["ranks"],
        timeout=timedelta(seconds=600),
    )
    rows = [
        {"call": operation, "bytes": nbytes, "mode": mode, "seconds": times}
        for nbytes in task["bytes"]
        for operation in task["operations"]
        for mode, times in measure(operation, nbytes, task["modes"], task["repeats"]).items()
    ]
    rows += [
        {"call": ONE_RANK, "bytes": 4, "mode": mode, "seconds": times}
        for mode, times in one_rank(task["repeats"]).items()
    ]
    if rank == 0:
        (directory / "rows.json").write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def play(rate: str, hosts: Hosts | None, task: dict[str, Any]) -> list[dict[str, Any]]:
    """Start the ranks, and read their measurements."""
    command = [sys.executable, str(Path(__file__).resolve()), "--worker"]
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "task.json").write_text(json.dumps(task))
        if hosts is not None:
            hosts.set_rate(rate)
            done = hosts.run([*command, directory], ranks=task["ranks"], ranks_per_host=1, timeout=3600)
            statuses, output = [done.returncode], done.stderr
        else:
            forked = multiprocessing.get_context("fork")  # Import torch only once.
            ranks = [forked.Process(target=work, args=(Path(directory), rank)) for rank in range(task["ranks"])]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
            statuses, output = [process.exitcode for process in ranks], "see above"
        if any(statuses):
            raise UserError(f"{rate}: the ranks ended with {statuses}: {' '.join(output.split())[-400:]}")
        rows: list[dict[str, Any]] = json.loads((Path(directory) / "rows.json").read_text())
    return [{"rate": rate, **row} for row in rows]


def main() -> int:
    """Run the benchmark, and return the exit status."""
    if sys.argv[1:2] == ["--worker"]:
        work(Path(sys.argv[2]), int(os.environ["PMI_RANK"]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", default=["none", "1gbit", "200mbit", "100mbit"])
    parser.add_argument("--bytes", type=int, nargs="+", default=[65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20])
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--keep-memory", action="store_true", help="do not let new memory cost anybody time")
    parser.add_argument("--json", type=Path)
    small = {"rates": ["none"], "bytes": [65536], "operations": ["all-reduce"], "repeats": 1, "ranks": 2}
    options = parse(parser, **small)
    names = ("bytes", "operations", "modes", "repeats", "ranks", "keep_memory")
    task = {name: getattr(options, name) for name in names}
    try:
        if options.keep_memory:
            keep_memory()
        limited = [rate for rate in options.rates if rate != "none"]
        if limited and (reason := why_not()):
            raise UserError(reason)
        print(*head(Path(__file__)), sep="\n", flush=True)
        rows: list[dict[str, Any]] = []
        with Hosts(options.ranks) if limited else nullcontext() as hosts:
            for rate in options.rates:
                rows += play(rate, None if rate == "none" else hosts, task)
    except UserError as error:
        print(f"torch_collectives: {error}", file=sys.stderr)
        return 2
    console = Console(width=max(columns(), 200), highlight=False)
    for rate in options.rates:
        for call in options.operations:
            console.print(table(rows, rate, call), "")
    print(*targets(rows), sep="\n")
    if options.json:
        about = {"provenance": provenance(Path(__file__)), "machine": describe_machine()}
        options.json.write_text(json.dumps({**about, "ranks": options.ranks, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
