"""Measure the cost of all-reduces that `algorithm: auto` leaves to PyTorch without a trial.

    python benchmarks/plain_calls.py [--bytes 4 1024 16384 65532 65536] [--frames 20] [--turns 31] [--calls 100]
                                     [--ranks 2] [--json FILE] [--tiny]

These calls are small, or sum values that are not gradients. The ranks are processes on this machine. In each turn, all
modes make the same calls, in a different order. The time of a turn is the lower quartile of its calls on the slowest
rank, because other processes delay many calls. Ratios to plain gloo are paired by turn, with 95 % intervals. For sums
of 64 KiB and more, the caller's stack is searched for a function of a framework, below `--frames` additional frames.

Modes: `handed on` is a Python kernel that only forwards calls, which is the lower bound for Python kernels. `auto int8`
has the default `min_bytes`.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from provenance import head, provenance
from rich.console import Console
from rich.table import Table
from tiny import parse
from torch_collectives import HandedOn, Kernels
from torch_targets import HANDED_ON, PLAIN

from hpcbench.bench.machine import describe_machine
from hpcbench.contract.interpose import Interposition
from hpcbench.contract.scheme import NamedScheme
from hpcbench.programs.gradients import is_gradient
from hpcbench.programs.intercept import Interception
from hpcbench.report.statistics import paired_ratio

AUTO = "auto int8"
LIMIT = 1.10
"""Largest ratio to plain gloo that meets the goal."""
Result = TypeVar("Result")


def call_under(frames: int, call: Callable[[], Result]) -> Result:
    """Call a function with additional stack frames above it."""
    return call() if frames == 0 else call_under(frames - 1, call)


def time_calls(values: torch.Tensor, calls: int) -> float:
    """Return the time of an all-reduce in seconds: the lower quartile of many calls, on the slowest rank."""
    dist.all_reduce(values)  # The first call through new kernels takes longer.
    dist.barrier()
    seconds = []
    for _ in range(calls):
        begin = time.perf_counter()
        dist.all_reduce(values)
        seconds.append(time.perf_counter() - begin)
    slowest = torch.tensor([quantiles(seconds, n=4)[0]], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def time_in_mode(kernels: Kernels | None, measure: Callable[[], float]) -> float:
    """Return the measurements with kernels that replace PyTorch's kernels."""
    if kernels is None:
        return measure()
    kernels.install()
    try:
        return measure()
    finally:
        kernels.remove()


def measure(nbytes: int, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the time of a call in each turn in seconds, by mode."""
    scheme = NamedScheme(name="bench", algorithm="auto", default="int8:256")
    modes: dict[str, Kernels | None] = {
        PLAIN: None,
        HANDED_ON: HandedOn(),
        AUTO: Interception(Interposition(scheme=scheme, out="nowhere")),
    }
    values = torch.zeros(nbytes // 4)
    seconds: dict[str, list[float]] = {mode: [] for mode in modes}
    for turn in range(options.turns):
        for mode in Random(turn).sample(list(modes), len(modes)):  # All ranks use the same order.
            taken = time_in_mode(modes[mode], lambda: time_calls(values, options.calls))
            seconds[mode].append(taken)
    return seconds


def time_walk(turns: int) -> float:
    """Return the time of a stack search in seconds."""
    seconds = []
    for _ in range(100 * turns):
        begin = time.perf_counter()
        is_gradient()
        seconds.append(time.perf_counter() - begin)
    return median(seconds)


def work(directory: Path, rank: int, options: argparse.Namespace) -> None:
    """Measure on one rank."""
    torch.set_num_threads(1)
    store = f"file://{directory / 'store'}"
    timeout = timedelta(seconds=600)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=options.ranks, timeout=timeout)
    rows = [
        {"bytes": nbytes, "mode": mode, "seconds": seconds}
        for nbytes in options.bytes
        for mode, seconds in call_under(options.frames, lambda nbytes=nbytes: measure(nbytes, options)).items()
    ]
    if rank == 0:
        walk_s = call_under(options.frames, lambda: time_walk(options.turns))
        (directory / "rows.json").write_text(json.dumps({"rows": rows, "walk_s": walk_s}))
    dist.barrier()
    dist.destroy_process_group()


def play(options: argparse.Namespace) -> dict[str, Any]:
    """Start the ranks, and return their measurements."""
    with tempfile.TemporaryDirectory() as directory:
        forked = multiprocessing.get_context("fork")  # Import torch only once.
        ranks = [forked.Process(target=work, args=(Path(directory), rank, options)) for rank in range(options.ranks)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise SystemExit(f"plain_calls: the ranks ended with {[process.exitcode for process in ranks]}: see above")
        measured: dict[str, Any] = json.loads((Path(directory) / "rows.json").read_text())
    return measured


def table(rows: list[dict[str, Any]]) -> Table:
    """Return a table with a row for each size and mode."""
    lines = Table(box=None, pad_edge=False)
    for title in ("bytes", "mode", "us", "time x plain (95 % CI)", f"at most {LIMIT:.2f}"):
        lines.add_column(title, justify="right" if title in ("bytes", "us") else "left")
    plain = {row["bytes"]: row["seconds"] for row in rows if row["mode"] == PLAIN}
    for row in rows:
        ratio = paired_ratio(row["seconds"], plain[row["bytes"]])
        interval, met = "", "-"
        if ratio.low is not None and ratio.high is not None:
            interval = f" ({ratio.low:.3f} to {ratio.high:.3f})"
            met = "met" if ratio.high <= LIMIT else "not met" if ratio.low > LIMIT else "not decided"
        us = f"{1e6 * median(row['seconds']):.1f}"
        is_auto = row["mode"] == AUTO
        lines.add_row(str(row["bytes"]), row["mode"], us, f"{ratio.estimate:.3f}{interval}", met if is_auto else "")
    return lines


def main() -> int:
    """Run the benchmark, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, nargs="+", default=[4, 1024, 16384, 65532, 65536])
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--turns", type=int, default=31)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parse(parser, bytes=[4], turns=2, calls=3)
    print(*head(Path(__file__)), sep="\n", flush=True)
    measured = play(options)
    Console(width=120, highlight=False).print(table(measured["rows"]))
    print(f"a search of the stack under {options.frames} frames more takes {1e6 * measured['walk_s']:.2f} us")
    if options.json:
        about = {"provenance": provenance(Path(__file__)), "machine": describe_machine()}
        options.json.write_text(json.dumps({**about, **measured}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
