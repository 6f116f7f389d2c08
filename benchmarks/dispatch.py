"""Compare how hpcbench dispatches tokens to experts, plain and encoded, with PyTorch's all-to-all over gloo.

    python benchmarks/dispatch.py [--rate 1gbit] [--turns 9] [--rows 512 4096] [--hidden 1024] [--codecs ...]
                                  [--json FILE] [--tiny]

Two virtual hosts with two ranks each are connected by links of the given rate. Each rank sends a part of its fp32 rows
to each other rank. The parts are equal, as with experts of limited capacity, or unequal, as with a router that drops no
tokens. In each turn, all methods send the same rows in the same processes, in rotated order. Times are those of the
slowest rank. The method "gloo" is all_to_all_single of torch.distributed. Gloo uses TCP even within a host, where MPI
uses shared memory, so the methods differ less between hosts. The results of exact methods must be bitwise identical.
Requires Linux, root or user namespaces, iproute2, and hpcbench[train,local]. The exit status is 2 if a requirement is
missing.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from provenance import head
from rich.console import Console
from rich.table import Table
from shared import make_table, write_results
from tiny import parse

from hpcbench.codecs.registry import get_codec
from hpcbench.console import columns
from hpcbench.errors import UserError
from hpcbench.testing.hosts import Hosts, why_not
from hpcbench.testing.hosts.rates import bits_per_second

HOSTS, EACH = 2, 2
ADDRESS = "tcp://198.18.0.1:29511"
"""Rendezvous address of the gloo ranks: the first virtual host."""
GLOO, LIBRARY = "torch over gloo", "MPI library"
LONGEST = 1200.0
Rows = list[dict[str, Any]]


def parts_of(rows: int, ranks: int, *, even: bool) -> list[list[int]]:
    """Return the number of rows that each rank sends to each other rank."""
    if even:
        return [[rows // ranks] * ranks for _ in range(ranks)]
    shares = np.arange(1, ranks + 1) / sum(range(1, ranks + 1))
    measured = [[int(rows * share) for share in np.roll(shares, rank)] for rank in range(ranks)]
    return [[rows - sum(parts[1:]), *parts[1:]] for parts in measured]


def work(asked: dict[str, Any]) -> None:
    """Measure on one rank. Rank 0 prints a line for each size, kind of parts and method."""
    import torch
    from mpi4py import MPI
    from torch import distributed

    from hpcbench.comm.channel import Channel
    from hpcbench.comm.group import Group
    from hpcbench.comm.progress import Progress
    from hpcbench.comm.wait import Wait
    from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase

    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    distributed.init_process_group("gloo", init_method=ADDRESS, rank=world.rank, world_size=world.size)
    group = Group(world.Dup(), Progress(Wait.GIVE_WAY))

    def channel(algorithm: Algorithm, codec: str) -> Channel:
        return Channel(Dimension.EP, Phase.FORWARD, MessageKind.ACT, get_codec(codec), algorithm)

    channels = {LIBRARY: channel(Algorithm.NATIVE, "none")}
    channels |= {codec: channel(Algorithm.ENCODED, codec) for codec in asked["codecs"]}
    for rows in asked["rows"]:
        for even in (True, False):
            table = parts_of(rows, world.size, even=even)
            sends = [count * asked["hidden"] for count in table[world.rank]]
            receives = [parts[world.rank] * asked["hidden"] for parts in table]
            source = np.random.default_rng(world.rank).standard_normal(sum(sends), dtype=np.float32)
            ways: dict[str, Callable[[np.ndarray], None]] = {}

            def exchange_by_gloo(
                out: np.ndarray, source: Any = source, sends: Any = sends, receives: Any = receives
            ) -> None:
                distributed.all_to_all_single(torch.from_numpy(out), torch.from_numpy(source), receives, sends)

            ways[GLOO] = exchange_by_gloo
            for name, carrier in channels.items():

                def exchange_by_group(
                    out: np.ndarray, carrier: Any = carrier, source: Any = source, counts: Any = (sends, receives)
                ) -> None:
                    group.all_to_all(source, out, counts, channel=carrier).wait()

                ways[name] = exchange_by_group
            exact = np.empty(sum(receives), np.float32)
            times: dict[str, list[float]] = defaultdict(list)
            errors, wires = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0)
            for turn in range(-1, asked["turns"]):  # The first call also sets up connections.
                order = list(ways)
                for k in range(len(order)):
                    name = order[(k + turn) % len(order)] if turn >= 0 else order[k]
                    out = np.full(sum(receives), np.nan, np.float32)
                    before = channels[name].counters.wire_bytes if name in channels else 0
                    world.Barrier()
                    begin = time.perf_counter()
                    ways[name](out)
                    seconds = world.allreduce(time.perf_counter() - begin, MPI.MAX)
                    if turn >= 0:
                        times[name].append(seconds)
                    elif name == GLOO:
                        exact[:] = out
                    gap = float(np.linalg.norm(out - exact) / np.linalg.norm(exact)) if turn >= 0 else 0.0
                    errors[name] = max(errors[name], world.allreduce(gap, MPI.MAX))
                    if name in channels:
                        wires[name] = world.allreduce(channels[name].counters.wire_bytes - before)
            sent = world.allreduce(4 * (sum(sends) - sends[world.rank]))
            for name in ways if world.rank == 0 else ():
                row = {"rows": rows, "even": even, "way": name, "seconds": times[name], "error": errors[name]}
                more = {"message_bytes": sent / world.size, "wire_bytes": (wires[name] or sent) / world.size}
                print(json.dumps({**row, **more}), flush=True)
    distributed.destroy_process_group()


def measure(asked: dict[str, Any], rate: str) -> Rows:
    """Start the ranks, and parse their output."""
    with tempfile.TemporaryDirectory() as directory, Hosts(HOSTS, rate) as hosts:
        file = Path(directory) / "asked.json"
        file.write_text(json.dumps(asked))
        command = [sys.executable, "-m", "mpi4py", __file__, "--worker", str(file)]
        environment = {"GLOO_SOCKET_IFNAME": "eth0"}
        done = hosts.run(command, ranks=HOSTS * EACH, ranks_per_host=EACH, timeout=LONGEST, environment=environment)
    if done.returncode:
        raise UserError(f"the ranks ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def tabulate(measured: Rows, *, even: bool) -> Table:
    """Make a table with a row for each size and method."""
    headings = ("rows", "way", "ms", "of gloo's time", "MB a rank", "on the wire", "error")
    page = make_table(*headings, left=("way",), spaced=True)
    rows = [row for row in measured if row["even"] is even]
    gloo = {row["rows"]: row["seconds"] for row in rows if row["way"] == GLOO}
    for row in rows:
        ms = [1e3 * seconds for seconds in row["seconds"]]
        ratios = [ours / theirs for ours, theirs in zip(row["seconds"], gloo[row["rows"]], strict=True)]
        page.add_row(
            str(row["rows"]),
            row["way"],
            f"{statistics.median(ms):.2f} ({min(ms):.2f} to {max(ms):.2f})",
            f"{statistics.median(ratios):.3f}",
            f"{row['message_bytes'] / 1e6:.3f}",
            f"{row['wire_bytes'] / 1e6:.3f}",
            f"{row['error']:.1e}",
        )
    return page


def main(arguments: Sequence[str]) -> int:
    """Read the options, measure and print, and return the exit status."""
    if list(arguments[:1]) == ["--worker"]:
        work(json.loads(Path(arguments[1]).read_text()))
        return 0
    parser = argparse.ArgumentParser(description="Dispatch of tokens to experts, compared with torch's all-to-all.")
    parser.add_argument("--rate", default="1gbit", help="limit of the hosts' links")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--rows", type=int, nargs="+", default=[512, 4096], help="that a rank sends")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--codecs", nargs="+", default=["none", "bf16", "int8:256", "zfp:8", "mpc"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all times")
    options = parse(parser, turns=2, rows=[32], hidden=64, codecs=["none", "int8:256"])
    try:
        bits_per_second(options.rate)
        if reason := why_not():
            raise UserError(reason)
        asked = {name: getattr(options, name) for name in ("turns", "rows", "hidden", "codecs")}
        print(*head(Path(__file__)), sep="\n", flush=True)
        measured = measure(asked, options.rate)
    except UserError as error:
        print(f"dispatch: {error}", file=sys.stderr)
        return 2
    write_results(options.json, Path(__file__), {"asked": asked, "rows": measured})
    for even in (True, False):
        print(f"\n{'equal' if even else 'unequal'} parts; {options.turns} turns, links of {options.rate}")
        Console(width=columns(), highlight=False).print(tabulate(measured, even=even))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
