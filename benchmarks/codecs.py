"""Compare the codecs of hpcbench with other compressors on the same values, and check speed goals.

    python benchmarks/codecs.py [--data NAME|FILE] [--mib N] [--repeats K] [--cores 1 2] [--type float32 bfloat16]
                                [--fresh-memory] [--tiny]

Speeds in GB/s count uncompressed bytes. The speed of the fastest of K turns is shown, because other programs can only
slow a turn down. For a single-threaded compressor, two threads on two cores each compress half of the values.
Compressors that are not installed are listed as missing: pip install '.[bench,train]'.

Each compressor is called as programs usually call it. The codecs of hpcbench and a few others write to memory that the
caller provides. Many others return new memory. Above 32 MiB, the C library requests new memory from the system for each
call, page by page. By default, this script keeps freed memory, so that only the work of the codecs is compared.
--fresh-memory also times page faults, and does not check the goals.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from kept_memory import keep_memory
from peers import BLOCK, PACKAGES, ZFP_RATES, Coder, Entry, entries
from provenance import head
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.bench.data import TYPES, load_values
from hpcbench.bench.fidelity import Errors, compute_errors
from hpcbench.bench.machine import find_cpu_model
from hpcbench.bench.progress import progress
from hpcbench.bench.timing import Subject, time_in_turns
from hpcbench.codecs.library import INSTRUCTION_SETS, Kernels, kernels
from hpcbench.codecs.types import Array
from hpcbench.console import columns
from hpcbench.errors import UserError
from hpcbench.present.notation import error, short

OPERATIONS = ("encode", "decode", "decode_add")


@dataclass(frozen=True)
class Measured:
    """A row of the table."""

    entry: Entry
    ratio: float
    errors: Errors
    speeds: dict[str, float]
    """GB/s by operation."""


@dataclass(frozen=True)
class Goal:
    """Speed or compression ratio that codecs must reach on one core."""

    what: str
    """``ratio``, or an operation whose speed is compared with that of the rival."""
    least: float
    codecs: tuple[str, ...]
    rival: str = ""
    """Name of the rival, in which ``{}`` is replaced by the codec's parameter."""
    types: tuple[str, ...] = ("float32",)

    def text(self) -> str:
        """Return the goal as text."""
        whose = self.codecs[0] if len(self.codecs) == 1 else self.codecs[0].partition(":")[0]
        than = f"{self.least:g}x {self.rival.replace(' {}', '')}" if self.rival else f"{self.least:g}"
        return f"{whose} {self.what.replace('_', '+')} >= {than}, {' and '.join(self.types)}"


_ZFP = tuple(f"zfp:{rate}" for rate in ZFP_RATES)
_INT8 = (f"int8:{BLOCK}",)
_INT4 = ("int4:32/256", "int4:16/256", "int4:32/256:nonuniform", "int4:32/256:stochastic")
GOALS = (
    Goal("encode", 12, _ZFP, "zfpy {}"),
    Goal("decode", 12, _ZFP, "zfpy {}"),
    Goal("encode", 1, _INT8, "memcpy"),
    Goal("decode_add", 1, _INT8, "memcpy"),
    Goal("encode", 0.6, _INT4, _INT8[0]),
    Goal("decode", 0.8, _INT4, _INT8[0]),
    Goal("encode", 0.4, ("rotate64+int4:32/256",), _INT8[0]),
    Goal("ratio", 1.16, ("xpk",)),
    Goal("ratio", 1.40, ("xpk",), types=("bfloat16",)),
    Goal("encode", 5, ("xpk",), "pcodec", ("float32", "bfloat16")),
    Goal("encode", 2, ("mpc",), "blosc2 bitshuffle+lz4"),
    Goal("decode", 1, ("mpc",), "blosc2 bitshuffle+lz4"),
)


def spread(entry: Entry, x: Array, out: Array, cores: int, pool: ThreadPoolExecutor) -> Coder:
    """Return the compressor with `cores` threads.

    Single-threaded compressors use one thread for each part of the values.
    """
    assert entry.make
    if cores == 1 or entry.threads:
        return entry.make(x, out, cores)
    edges = [x.size * k // cores // 1024 * 1024 for k in range(cores)] + [x.size]
    parts = [entry.make(x[a:b], out[a:b], 1) for a, b in pairwise(edges)]

    def together(operation: str) -> None:
        for done in [pool.submit(part.calls[operation]) for part in parts]:
            done.result()

    def check() -> None:
        for part in parts:
            part.check()

    calls = {operation: partial(together, operation) for operation in parts[0].calls}
    return Coder(calls, sum(part.wire_bytes for part in parts), check)


def measure(x: Array, rows: list[Entry], cores: int, repeats: int) -> dict[str, Measured]:
    """Run all installed compressors alternately on the same values."""
    contenders = [entry for entry in rows if entry.make]
    out = np.empty_like(x)
    coders, differences = [], []
    with ThreadPoolExecutor(cores) as pool:
        for entry in contenders:
            out.fill(-1)  # Otherwise a decoder that does nothing would leave the values of the previous one.
            coders.append(spread(entry, x, out, cores, pool))
            coders[-1].check()
            differences.append(compute_errors(x, out))
        subjects = [Subject(entry.name, coder.calls) for entry, coder in zip(contenders, coders, strict=True)]
        with progress() as show:
            times = time_in_turns(subjects, repeats, progress=show)
    return {
        entry.name: Measured(
            entry,
            x.nbytes / coder.wire_bytes,
            difference,
            {operation: x.nbytes / taken.best / 1e9 for operation, taken in calls.items()},
        )
        for entry, coder, difference, calls in zip(contenders, coders, differences, times, strict=True)
    }


def table(entries: list[Entry], rows: dict[str, Measured], title: str) -> Table:
    """Make a table with a row for each codec. Rows of hpcbench also contain the speed relative to that of a rival."""
    page = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("codec", "ratio", "encode", "decode", "decode+add", "rel. RMSE", "max error", "encode, decode vs"):
        page.add_column(heading, justify="left" if heading.startswith(("codec", "encode,")) else "right")
    for entry in entries:
        if entry.name not in rows:
            page.add_row(entry.name, "-", *["-"] * (len(OPERATIONS) + 2), "not installed")
            continue
        row = rows[entry.name]
        speeds = [short(row.speeds[name]) if name in row.speeds else "" for name in OPERATIONS]
        versus = ""
        if row.entry.rival:
            rival = rows[row.entry.rival]
            times = [f"{short(row.speeds[name] / rival.speeds[name])}x" for name in OPERATIONS[:2]]
            versus = f"{', '.join(times)} {rival.entry.name}"
        figures = [f"{row.ratio:.3f}", *speeds, error(row.errors.relative_rmse), error(row.errors.max_error)]
        page.add_row(row.entry.name, *figures, versus)
    return page


def judge(goal: Goal, results: dict[str, dict[str, Measured]]) -> str:
    """Check whether the rows of each type, keyed by name, reach a goal."""
    reached: dict[str, float] = {}
    for type in goal.types:
        rows = results.get(type, {})
        for codec in goal.codecs:
            rival = goal.rival.format(codec.partition(":")[2])
            if codec not in rows or (rival and rival not in rows):
                return f"{goal.text()}: not measured, {type} {rival if codec in rows else codec} is missing"
            row = rows[codec]
            value = row.ratio if goal.what == "ratio" else row.speeds[goal.what] / rows[rival].speeds[goal.what]
            label = codec if len(goal.codecs) > 1 else type
            reached[label] = value
    figures = ", ".join(f"{value:.3f}" if goal.what == "ratio" else f"{value:.1f}x" for value in reached.values())
    missed = [label for label, value in reached.items() if value < goal.least]
    verdict = "reached" if not missed else f"MISSED at {', '.join(missed)}" if len(reached) > 1 else "MISSED"
    return f"{goal.text()}: {figures}: {verdict}"


def run(arguments: argparse.Namespace, build: Kernels, console: Console) -> Iterator[str]:
    """Print the tables, and yield one line per goal."""
    results: dict[str, dict[str, Measured]] = {}
    for type in arguments.type:
        dtype = TYPES[type]
        x = load_values(arguments.data, max(1024, int(arguments.mib * 2**20) // dtype.itemsize), dtype)
        contenders = entries(dtype, build)
        for cores in arguments.cores:
            rows = measure(x, contenders, cores, arguments.repeats)
            if cores == 1:
                results[type] = rows
            what = f"{arguments.data}, {x.nbytes / 2**20:.4g} MiB of {type}"
            where = f"{cores} core{'s' if cores > 1 else ''} of {find_cpu_model()}, kernels {build.instruction_set}"
            memory = "fresh memory" if arguments.fresh_memory else "memory kept"
            title = f"{what}; {where}; GB/s of values, best of {arguments.repeats}, {memory}"
            console.print(table(contenders, rows, title))
        console.print()
    for goal in () if arguments.fresh_memory else GOALS:
        yield judge(goal, results)


def main() -> None:
    """Read the options, measure and print."""
    parser = argparse.ArgumentParser(description="Codecs compared with their peers.")
    parser.add_argument("--data", default="gradient", help="as of hpcbench bench codecs (default gradient)")
    parser.add_argument("--mib", type=float, default=64, help="MiB of values (default 64)")
    parser.add_argument("--repeats", type=int, default=5, help="number of turns, the fastest counts (default 5)")
    parser.add_argument("--cores", type=int, nargs="+", choices=(1, 2), default=[1, 2])
    parser.add_argument("--type", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--isa", choices=INSTRUCTION_SETS, default=None, help="build of the kernels (default: fastest)")
    parser.add_argument("--fresh-memory", action="store_true", help="time page faults of newly allocated memory, too")
    arguments = parse(parser, mib=0.1, repeats=1, cores=[1])
    if not arguments.mib > 0 or arguments.repeats < 1:
        parser.error("--mib must be above 0, --repeats at least 1")
    console = Console(width=columns(), highlight=False)
    try:
        if not arguments.fresh_memory:
            keep_memory()
        packages = [name.partition(".")[0] for name in PACKAGES if name != "torch"]
        print(*head(Path(__file__), ["numpy", *packages]), sep="\n", flush=True)
        for line in run(arguments, kernels(arguments.isa), console):
            console.print(line, soft_wrap=True)
    except (UserError, ValueError) as failure:
        parser.error(str(failure))


if __name__ == "__main__":
    main()
