"""Time context-parallel attention, compared with `scaled_dot_product_attention` in one process.

    python benchmarks/attention.py [--ranks 2] [--length 2048] [--turns 9] [--json FILE] [--tiny]

Each rank uses one thread. The task is causal attention of one sample in fp32, forward and backward. First, one process
computes the whole sample with PyTorch's function while the other ranks wait. Then the positions are divided among all
ranks with each method, with and without overlap of messages and computation. Each turn runs all variants one after the
other. A row contains the median, minimum and maximum time of the slowest rank, the ratio to the time of one process (at
best 1 / ranks), the bytes that a rank sends, and its waiting time. The ratio is only meaningful if each rank has its
own core. Requires hpcbench[train,local].
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import tiny
from provenance import head
from shared import make_table, run_ranks, write_results

from hpcbench.console import show_table


def worker(length: int, heads: int, features: int, turns: int) -> None:
    """Time every variant on all ranks. Rank 0 prints one JSON line per variant."""
    import torch
    import torch.nn.functional as F  # noqa: N812
    from mpi4py import MPI
    from torch import Tensor

    from hpcbench.comm.group import Group
    from hpcbench.comm.policy import Policy
    from hpcbench.comm.progress import Progress
    from hpcbench.comm.wait import Wait
    from hpcbench.contract.scheme import Scheme
    from hpcbench.parallel.context.attention import WAYS
    from hpcbench.parallel.context.passing import Sharers

    torch.set_num_threads(1)
    world = MPI.COMM_WORLD

    def tensors(positions: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(world.rank)
        return [torch.randn((1, heads, positions, features), generator=generator).requires_grad_() for _ in range(3)]

    upstream = torch.randn((1, heads, length, features))
    global_tensors, local_tensors = tensors(length), tensors(length // world.size)

    def alone() -> None:
        if world.rank == 0:
            F.scaled_dot_product_attention(*global_tensors, is_causal=True).backward(upstream)  # type: ignore[no-untyped-call]

    def run_together(way: str, ranks: Sharers) -> None:
        attention, _ = WAYS[way]  # type: ignore[index]
        attention(*local_tensors, ranks).backward(upstream[:, :, : length // world.size])

    waiting = Wait.GIVE_WAY if world.size > len(os.sched_getaffinity(0)) else Wait.SPIN  # As in a run.
    calls: dict[str, tuple[Callable[[], None], Sharers | None]] = {"one process": (alone, None)}
    for overlap, way in product((False, True), WAYS):
        group = Group(world.Dup(), Progress(waiting, background=overlap))
        ranks = Sharers.of(group, Policy(Scheme(algorithm="native")), overlap=overlap)
        name = f"{way}, {'beside' if overlap else 'in turn'}"
        calls[name] = (lambda way=way, ranks=ranks: run_together(way, ranks)), ranks  # type: ignore[misc]
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, (call, ranks_of) in calls.items():
            if turn == 1 and ranks_of is not None:
                for channel in (ranks_of.forward, ranks_of.backward):
                    channel.counters = type(channel.counters)()
            world.Barrier()
            start = time.perf_counter()
            call()
            times[name].append(world.allreduce(time.perf_counter() - start, MPI.MAX))
    for name, (_, ranks_of) in calls.items():
        channels = [] if ranks_of is None else [ranks_of.forward, ranks_of.backward]
        waited = sum(channel.counters.exposed_s for channel in channels) / turns
        row = {"name": name, "seconds": times[name][1:], "waited": world.allreduce(waited, MPI.MAX)}
        row["bytes"] = sum(channel.counters.message_bytes for channel in channels) // turns
        if world.rank == 0:
            print(json.dumps(row), flush=True)


def main() -> int:
    """Run the benchmark, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--length", type=int, default=2048, help="positions of the sample, a multiple of 2 x ranks")
    parser.add_argument("--heads", type=int, default=8, help="a multiple of the ranks")
    parser.add_argument("--features", type=int, default=64, help="of a head")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all times")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = tiny.parse(parser, length=64, turns=2)
    if options.length % (2 * options.ranks) or options.heads % options.ranks or options.turns < 1:
        print(
            "attention: --length is a multiple of 2 x ranks, --heads of ranks, and turns are 1 or more", file=sys.stderr
        )
        return 2
    if options.worker:
        worker(options.length, options.heads, options.features, options.turns)
        return 0
    print(*head(Path(__file__)), sep="\n", flush=True)
    rows = run_ranks(options.ranks)
    write_results(options.json, Path(__file__), {"rows": rows})
    show(rows, f"{options.length} positions, {options.heads} heads of {options.features}, {options.ranks} ranks")
    return 0


def show(rows: list[dict[str, Any]], title: str) -> None:
    """Print the table."""
    headings = ("", "ms", "x one process", "waited ms", "MB a rank")
    table = make_table(*headings, left=("",), title=f"attention, forward and backward: {title}")
    alone = median(rows[0]["seconds"])
    for row in rows:
        seconds = row["seconds"]
        table.add_row(
            row["name"],
            f"{median(seconds) * 1e3:.2f} ({min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f})",
            f"{median(seconds) / alone:.2f}",
            f"{row['waited'] * 1e3:.2f}",
            f"{row['bytes'] / 1e6:.3f}",
        )
    show_table(table)


if __name__ == "__main__":
    sys.exit(main())
