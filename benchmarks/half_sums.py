"""Time sums of 16-bit values in an MPI library, with its own type and with hpcbench's loop, compared with fp32.

    python benchmarks/half_sums.py [--ranks 2] [--mib 4] [--repeats 15] [--tiny]

The result justifies how the baseline of a half-precision run is summed (hpcbench/comm/half_sums.py). Reduce_local adds
two vectors in one process. Allreduce adds vectors over the ranks of this machine. The variants of Allreduce alternate
within the same run. All rows use the same number of values. Requires hpcbench[train,local].
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tiny
from provenance import head
from shared import make_table, run_ranks

from hpcbench.console import show_table


def worker(values: int, repeats: int) -> None:
    """Time all sums on all ranks. Rank 0 prints one JSON line per sum."""
    from mpi4py import MPI

    from hpcbench.comm import half_sums

    world = MPI.COMM_WORLD
    fp16, bf16 = (half_sums.by_kernel(name) for name in ("float16", "bfloat16"))
    sums: dict[str, tuple[Any, Any, MPI.Op]] = {"fp32, MPI library": (np.float32, MPI.FLOAT, MPI.SUM)}
    try:
        half_type = MPI.Datatype.fromcode("e")
        MPI.SUM.Reduce_local([np.zeros(1, np.uint16), half_type], [np.zeros(1, np.uint16), half_type])
        sums["fp16, MPI library's type"] = np.uint16, half_type, MPI.SUM
    except (ValueError, KeyError, MPI.Exception):
        pass
    sums["fp16, our loop"] = np.uint16, fp16.datatype, fp16.op
    sums["bf16, our loop"] = np.uint16, bf16.datatype, bf16.op
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in sums}
    buffers = {name: (np.zeros(values, kind), np.zeros(values, kind)) for name, (kind, _, _) in sums.items()}

    def timed(call: Callable[[], object]) -> float:
        world.Barrier()
        start = time.perf_counter()
        call()
        return float(world.allreduce(time.perf_counter() - start, MPI.MAX))

    for _ in range(repeats + 1):
        for name, (_, datatype, op) in sums.items():
            a, b = ([x, datatype] for x in buffers[name])
            local, everywhere = times[name]
            local.append(timed(lambda a=a, b=b, op=op: op.Reduce_local(a, b)))  # type: ignore[misc]
            everywhere.append(timed(lambda b=b, op=op: world.Allreduce(MPI.IN_PLACE, b, op)))  # type: ignore[misc]
    if world.rank == 0:
        taken = half_sums.agreed(MPI.COMM_SELF)["float16"].whose
        for name, (local, everywhere) in times.items():
            print(json.dumps({"name": name, "local": median(local[1:]), "all": median(everywhere[1:]), "taken": taken}))


def main() -> int:
    """Run the benchmark, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mib", type=float, default=4.0, help="of the fp32 vector")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = tiny.parse(parser, mib=1 / 64, repeats=2)
    values = round(options.mib * 2**20 / 4)
    if options.worker:
        worker(values, options.repeats)
        return 0
    print(*head(Path(__file__)), sep="\n")
    rows = run_ranks(options.ranks)
    headings = ("", "Reduce_local, us", "x fp32", "Allreduce, us", "x fp32")
    table = make_table(*headings, left=("",), title=f"sums of {values} values, {options.ranks} ranks")
    for row in rows:
        cells = [
            f(row, key)
            for key in ("local", "all")
            for f in (_format_microseconds, lambda r, k: _format_ratio(r, rows[0], k))
        ]
        table.add_row(row["name"], *cells)
    show_table(table)
    print(f"fp16 messages of the baseline are summed by: {rows[0]['taken']}")
    return 0


def _format_microseconds(row: dict[str, Any], key: str) -> str:
    return f"{row[key] * 1e6:.0f}"


def _format_ratio(row: dict[str, Any], reference: dict[str, Any], key: str) -> str:
    return f"{row[key] / reference[key]:.2f}"


if __name__ == "__main__":
    sys.exit(main())
