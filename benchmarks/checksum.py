"""Measure the cost of the checksum: an encoded all-reduce with and without the checksum.

    python benchmarks/checksum.py [--ranks 2] [--mib 16] [--repeats 40] [--tiny]

The ranks run on this machine, one per core, so no slow link hides the cost. Calls with and without the checksum
alternate. The script also prints the speed of the checksum, and of CRC-32 (zlib) on the same bytes. Requires
hpcbench[train,local].
"""

import argparse
import json
import statistics
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from provenance import head
from rich.console import Console
from shared import make_table, run_ranks
from tiny import parse

from hpcbench.comm import frame
from hpcbench.console import columns

CODECS = ["none", "int8:256", "int4:32", "zfp:8", "zfp:16", "mpc:1"]


def remove_seals() -> AbstractContextManager[Any]:
    """Make frames without computing or checking a checksum."""
    return patch.multiple(
        frame,
        seal=lambda buffer, used: buffer[: used + frame.BYTES],
        opened=lambda message, sender: message[: -frame.BYTES],
    )


def worker(nbytes: int, repeats: int) -> None:
    """Time all codecs on all ranks. Rank 0 prints the medians and their ratio."""
    from mpi4py import MPI

    from hpcbench.bench.data import load_values
    from hpcbench.codecs.registry import get_codec
    from hpcbench.comm.channel import Channel
    from hpcbench.comm.group import Group
    from hpcbench.comm.progress import Progress
    from hpcbench.comm.topology import Topology
    from hpcbench.comm.wait import Wait
    from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase

    world = MPI.COMM_WORLD
    group = Group(world.Dup(), Progress(Wait.SPIN))
    group.topology = Topology.regular(world.size, 1)  # Messages within a node have no checksum.
    x = np.roll(load_values("gradient", nbytes // 4, np.dtype(np.float32)), world.rank)
    for name in CODECS:
        codec = get_codec(name)
        channel = Channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, codec, Algorithm.TWO_SHOT)
        times: dict[str, list[float]] = {"with": [], "without": []}
        for turn in range(repeats + 1):
            for kind, context in (("with", nullcontext), ("without", remove_seals))[:: 1 if turn % 2 else -1]:
                buf = x.copy()
                with context():
                    world.Barrier()
                    start = time.perf_counter()
                    group.all_reduce(buf, channel=channel).wait()
                    times[kind].append(world.allreduce(time.perf_counter() - start, MPI.MAX))
        if world.rank == 0:
            ratios = [a / b for a, b in zip(times["with"][1:], times["without"][1:], strict=True)]
            row = {kind: statistics.median(seconds[1:]) for kind, seconds in times.items()}
            print(json.dumps({"codec": codec.name, **row, "ratio": statistics.median(ratios)}), flush=True)


def speed(call: Callable[[], object], nbytes: int) -> float:
    """Return the highest speed of many calls in GB/s."""
    best = min(_time_call(call) for _ in range(50))
    return nbytes / best / 1e9


def _time_call(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> int:
    """Run the benchmark, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mib", type=float, default=16.0)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parse(parser, mib=0.25, repeats=2)
    nbytes = int(options.mib * 2**20) // 4 * 4
    if options.worker:
        worker(nbytes, options.repeats)
        return 0
    print(*head(Path(__file__), ["numpy", "xxhash"]), sep="\n", flush=True)
    rows = run_ranks(options.ranks)
    table = make_table("codec", "with, ms", "without, ms", "cost", left=("codec",))
    for row in rows:
        table.add_row(
            row["codec"], f"{row['with'] * 1e3:.2f}", f"{row['without'] * 1e3:.2f}", f"{row['ratio'] - 1:+.1%}"
        )
    console = Console(width=columns(), highlight=False)
    console.print(f"all-reduce of {options.mib:g} MiB, two-shot, {options.ranks} ranks of this machine")
    console.print(table)
    block = np.random.default_rng(0).integers(0, 255, 1 << 18, dtype=np.uint8)
    buffer = np.concatenate([block, np.zeros(frame.BYTES, np.uint8)])
    console.print(
        f"256 KiB: checksum {speed(lambda: frame.seal(buffer, block.size), block.size):.0f} GB/s, "
        f"CRC-32 of zlib {speed(lambda: zlib.crc32(block), block.size):.1f} GB/s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
