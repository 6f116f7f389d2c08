"""Check the links between virtual hosts: time messages of 4 KiB to 4 MiB after a pause.

    python benchmarks/links.py [--rates 50mbit 200mbit ...] [--messages N] [--tiny]

The timing of a message ends when the receiver's empty answer arrives. "On the link" is the number of bytes, including
TCP, IP and Ethernet headers, divided by the rate: the shortest possible time. "Expected" adds the latency, which is the
time of an empty message over unlimited links. The minimum of N messages shows whether a link is ever too fast. The
median shows whether the link is too slow. "Of the limit" is the number of payload bytes divided by the median time. A
pause of 20 ms precedes the messages of each row. The messages of "8 x 64 KiB" follow each other without a pause.
Requires Linux, root or user namespaces, iproute2, and hpcbench[train,local].
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from provenance import head
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.bench.machine import find_cpu_model
from hpcbench.bench.progress import progress
from hpcbench.console import columns
from hpcbench.errors import UserError
from hpcbench.testing.hosts import Hosts, why_not
from hpcbench.testing.hosts.rates import bits_per_second, seconds_on_link

KIB = 1024
MESSAGES = {
    "4 KiB": (4 * KIB, 1),
    "16 KiB": (16 * KIB, 1),
    "64 KiB": (64 * KIB, 1),
    "8 x 64 KiB": (64 * KIB, 8),
    "512 KiB": (512 * KIB, 1),
    "4 MiB": (4096 * KIB, 1),
}
"""Size of a message in bytes and number of successive messages, for each row."""
HEADINGS = (
    "limit",
    "message",
    "on the link, ms",
    "least, x link",
    "least, x expected",
    "median, x expected",
    "of the limit",
)
PAUSE = 0.02
"""Pause before each message, in seconds."""


def worker(messages: int) -> None:
    """Send from rank 0 to rank 1, and print the time of each row in seconds, beginning with an empty message."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    answer, times = np.empty(0, np.uint8), {}
    for name, (nbytes, count) in {"empty": (0, 1), **MESSAGES}.items():
        message, times[name] = np.ones(nbytes, np.uint8), list[float]()
        for _ in range(messages + 1):
            if world.rank == 0:
                time.sleep(PAUSE)
            start = time.perf_counter()
            for _ in range(count):
                if world.rank == 0:
                    world.Send(message, 1)
                else:
                    world.Recv(message, 0)
            if world.rank == 0:
                world.Recv(answer, 1)
            else:
                world.Send(answer, 0)
            times[name].append(time.perf_counter() - start)
        del times[name][0]  # The first message connects, and grows TCP's window.
    if world.rank == 0:
        print(json.dumps(times))


def measure(hosts: Hosts, messages: int) -> dict[str, list[float]]:
    """Return the times of each row of :data:`MESSAGES` and of an empty message, in seconds."""
    command = [sys.executable, __file__, "--messages", str(messages), "--worker"]
    done = hosts.run(command, ranks=2, ranks_per_host=1, timeout=600)
    if done.returncode:
        raise UserError(f"the ranks ended with {done.returncode}: {' '.join(done.stderr.split())}")
    times: dict[str, list[float]] = json.loads(done.stdout)
    return times


def table(rates: list[str], messages: int) -> Table:
    """Make a table with a row for each rate and message."""
    title = f"{messages} messages of each size; two virtual hosts on one {find_cpu_model()}"
    page = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in HEADINGS:
        page.add_column(heading, justify="right")
    with progress() as show, Hosts(2) as hosts:
        empty = measure(hosts, messages)["empty"]
        for k, rate in enumerate(rates):
            show(k, len(rates), rate)
            hosts.set_rate(rate)
            times = measure(hosts, messages)
            for name, (nbytes, count) in MESSAGES.items():
                link, least, median = (
                    seconds_on_link(nbytes * count, rate),
                    min(times[name]),
                    statistics.median(times[name]),
                )
                page.add_row(
                    rate,
                    name,
                    f"{link * 1e3:,.3f}",
                    f"{least / link:.2f}",
                    f"{least / (link + min(empty)):.2f}",
                    f"{median / (link + statistics.median(empty)):.2f}",
                    f"{nbytes * count * 8 / median / bits_per_second(rate):.3f}",
                )
    return page


def main() -> None:
    """Read the options, measure and print."""
    parser = argparse.ArgumentParser(description="Messages over the links of virtual hosts.")
    parser.add_argument("--rates", nargs="+", default=["50mbit", "200mbit", "1gbit", "2gbit"], metavar="RATE")
    parser.add_argument("--messages", type=int, default=31, help="messages of each size (default 31)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parse(parser, rates=["200mbit"], messages=3)
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
