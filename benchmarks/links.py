"""Whether links between virtual hosts carry what they should: messages of 4 MB between two hosts, and within one.

    python benchmarks/links.py [--rates 50mbit 200mbit ...] [--messages N] [--tiny]

A message's time lasts until the receiver's empty answer; the median of N counts. Headers of TCP, IP and Ethernet leave
95.6 % of a link, 1448 of each 1514 bytes. Ranks of one host meet in shared memory: what they reach says only that the
links do not hold them up. Needs Linux, root or user namespaces, iproute2, and hpcbench[train,local].
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from provenance import head
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.bench.machine import cpu_model
from hpcbench.bench.progress import progress
from hpcbench.console import columns
from hpcbench.errors import UserError
from hpcbench.testing.hosts import Hosts, why_not
from hpcbench.testing.hosts.rates import bits_per_second

MESSAGE = 4_000_000
"""Bytes of a message."""
PLACES = {"between hosts": 1, "within a host": 2}
"""Ranks of each host, for two ranks."""


def worker(messages: int) -> None:
    """Rank 0 sends to rank 1, and prints the median of the times in seconds."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    message, answer, times = np.ones(MESSAGE, np.uint8), np.empty(0, np.uint8), []
    for _ in range(messages + 1):
        start = time.perf_counter()
        if world.rank == 0:
            world.Send(message, 1)
            world.Recv(answer, 1)
        else:
            world.Recv(message, 0)
            world.Send(answer, 0)
        times.append(time.perf_counter() - start)
    if world.rank == 0:
        print(statistics.median(times[1:]))  # the first one connects


def measure(hosts: Hosts, messages: int, ranks_per_host: int) -> float:
    """Bits per second, one way."""
    command = [sys.executable, __file__, "--messages", str(messages), "--worker"]
    done = hosts.run(command, ranks=2, ranks_per_host=ranks_per_host, timeout=600)
    if done.returncode:
        raise UserError(f"the ranks ended with {done.returncode}: {' '.join(done.stderr.split())}")
    return MESSAGE * 8 / float(done.stdout)


def table(rates: list[str], messages: int) -> Table:
    """A row for each rate."""
    title = f"one message of {MESSAGE / 1e6:g} MB, median of {messages}; two virtual hosts on one {cpu_model()}"
    page = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("limit", *(f"{place}, {unit}" for place in PLACES for unit in ("Mbit/s", "of the limit"))):
        page.add_column(heading, justify="right")
    limits = {rate: bits_per_second(rate) for rate in rates}
    with progress() as show, Hosts(2) as hosts:
        for k, (rate, limit) in enumerate(limits.items()):
            show(k, len(limits), rate)
            hosts.set_rate(rate)
            speeds = [measure(hosts, messages, each) for each in PLACES.values()]
            page.add_row(rate, *(text for speed in speeds for text in (f"{speed / 1e6:,.1f}", f"{speed / limit:,.3f}")))
    return page


def main() -> None:
    """Read the options, measure and print."""
    parser = argparse.ArgumentParser(description="Messages over the links of virtual hosts.")
    parser.add_argument("--rates", nargs="+", default=["50mbit", "200mbit", "1gbit", "2gbit"], metavar="RATE")
    parser.add_argument("--messages", type=int, default=7, help="messages of which the median counts (default 7)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parse(parser, rates=["1gbit"], messages=2)
    if arguments.messages < 1:
        parser.error("--messages must be at least 1")
    if arguments.worker:
        worker(arguments.messages)
        return
    try:
        if reason := why_not():
            raise UserError(reason)
        print(*head(Path(__file__)), sep="\n", flush=True)
        page = table(arguments.rates, arguments.messages)
    except UserError as failure:
        print(f"links: {failure}", file=sys.stderr)
        sys.exit(2)
    Console(width=columns(), highlight=False).print(page)


if __name__ == "__main__":
    main()
