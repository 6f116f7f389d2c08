"""Measure all-reduces on slow links: codecs compared with the MPI library and with a lower bound.

    python benchmarks/throttled_allreduce.py [--rates 50mbit ...] [--min 1M] [--max 64M] [--codecs ...] [--json FILE]
                                             [--hosts 4] [--ranks 2] [--tiny]

The ranks run on virtual hosts (hpcbench.testing.hosts), by default on four hosts with two ranks each. At each link
rate, `hpcbench bench network` measures the links. `hpcbench bench collectives` then measures every codec alternately
with the library's call (blocking or nonblocking, whichever is faster), and once more with automatic choice. The ideal
time is the minimum time to send the bytes of a hierarchical all-reduce over the link of each host. TCP, IP and Ethernet
headers take 4.6 % of the link. If ranks share a core, the cost per codec call limits the number of slices with which
the codec's work is hidden. With one rank per core (--hosts 2 --ranks 1), only the link matters.

Requires Linux, root or user namespaces, iproute2, a C compiler, and hpcbench[train,local]. The exit status is 2 if a
requirement is missing.
"""

import argparse
import json
import sys
import tempfile
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import head, provenance
from rich.console import Console
from rich.table import Table
from tiny import parse

from hpcbench.bench.machine import describe_machine
from hpcbench.bench.progress import progress
from hpcbench.codecs.registry import get_codec
from hpcbench.comm.plan import Operation
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.topology import Topology
from hpcbench.console import columns
from hpcbench.contract.traffic import Algorithm
from hpcbench.errors import UserError
from hpcbench.testing.hosts import Hosts, why_not
from hpcbench.testing.hosts.rates import bits_per_second

CODECS = ["none", "zfp:16", "zfp:8", "int8:256", "int4:32", "sign:1024", "mpc:1", "xpk"]
SLOWEST = 30.0
"""Time limit of a library call in seconds. Larger vectors are not measured."""


def bench(hosts: Hosts, ranks_per_host: int, *arguments: str) -> None:
    """Run an ``hpcbench bench`` command on all hosts."""
    command = [sys.executable, "-m", "hpcbench", "bench", *arguments]
    done = hosts.run(command, ranks=hosts.count * ranks_per_host, ranks_per_host=ranks_per_host, timeout=3600)
    if done.returncode:
        error_text = " ".join((done.stderr or done.stdout).split())[-400:]
        raise UserError(f"{' '.join(arguments[:1])}: the ranks ended with {done.returncode}: {error_text}")


def ideal_seconds(nbytes: int, wire_share: float, rate: str, topology: Topology) -> float:
    """Return the time to send the bytes of a hierarchical all-reduce over a host's link."""
    how = plan(
        Request(
            Operation.ALL_REDUCE,
            nbytes // 4,
            np.dtype(np.float32),
            topology,
            get_codec("none"),
            algorithm=Algorithm.HIERARCHICAL,
            slices=1,
        )
    )
    return float(how.busiest_link() * wire_share * 8 / bits_per_second(rate))


def wire_share(codec: str, row: dict[str, Any], topology: Topology) -> float:
    """Return the wire bytes per message byte of encoded messages."""
    n, built = row["bytes"] // 4, get_codec(codec)
    if built.fixed_size:
        return built.wire_bytes(n, np.dtype(np.float32)) / (4 * n)
    plain = Fraction(row["message_bytes"] - _encoded_bytes(row, topology), row["message_bytes"])
    return float((Fraction(row["wire_bytes"], row["message_bytes"]) - plain) / (1 - plain))


def _encoded_bytes(row: dict[str, Any], topology: Topology) -> int:
    """Return the fraction of the message that the codec encodes. Sums within hosts are not encoded."""
    if row["algorithm"] != Algorithm.HIERARCHICAL.value:
        return int(row["message_bytes"])
    return int(row["message_bytes"]) - (topology.ranks - len(topology.members)) * int(row["bytes"])


def largest(rate: str, most: str, topology: Topology) -> str:
    """Return the largest size that the library handles in time.

    Candidates are `most`, a quarter of `most`, and so on.
    """
    size = int(most.removesuffix("M"))
    while size > 1 and ideal_seconds(size << 20, 1.0, rate, topology) > SLOWEST / 2:
        size //= 4
    return f"{size}M"


def measure(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Measure all rows, keyed by rate."""
    rows_of_rates: dict[str, list[dict[str, Any]]] = {}
    codecs = [word for codec in options.codecs for word in ("--codec", codec)]
    chosen = [word for codec in options.codecs if codec != "none" for word in ("--codec", codec)]
    topology = Topology.regular(options.hosts, options.ranks)
    with Hosts(options.hosts) as hosts, progress() as show, tempfile.TemporaryDirectory() as directory:
        run, turns = partial(bench, hosts, options.ranks), 3 * len(options.rates)
        links, rows = str(Path(directory) / "links.json"), Path(directory) / "rows.json"
        for i, rate in enumerate(options.rates):
            hosts.set_rate(rate)
            sizes = ["--min", options.min, "--max", largest(rate, options.max, topology)]
            how = ["--links", links, *sizes, "--repeats", str(options.repeats), "--output", str(rows)]
            show(3 * i, turns, f"{rate}: links and codecs")
            run("network", *options.codecs, "--output", links, "--max-mb", "4", "--repeats", "3")
            show(3 * i + 1, turns, f"{rate}: every codec")
            run("collectives", *codecs, "--tune", links, *how)
            rows_of_rates[rate] = json.loads(rows.read_text())["rows"]
            show(3 * i + 2, turns, f"{rate}: automatic choice")
            run("collectives", *chosen, "--algorithm", "auto", *how)
            rows_of_rates[rate] += [row for row in json.loads(rows.read_text())["rows"] if row["scheme"] != "native"]
    for rate, rows_of_scheme in rows_of_rates.items():
        for row in rows_of_scheme:
            if row["scheme"] != "native":
                share = wire_share(row["codec"], row, topology) if row["algorithm"] != "native" else 1.0
                row["ideal_s"] = ideal_seconds(row["bytes"], share, rate, topology)
                row["of_ideal"] = row["seconds"] / row["ideal_s"]
    return rows_of_rates


def table(rate: str, rows: list[dict[str, Any]]) -> Table:
    """Make a table with a row for each scheme and two columns for each size."""
    sizes = sorted({row["bytes"] for row in rows})
    built = Table(title=f"all-reduce over links of {rate}", box=None, pad_edge=False)
    built.add_column("scheme")
    built.add_column("carried out by")
    for nbytes in sizes:
        built.add_column(f"{nbytes >> 20} MiB, ms", justify="right")
        built.add_column("x native", justify="right")
        built.add_column("x ideal", justify="right")
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        rows_of_scheme = {row["bytes"]: row for row in rows if row["scheme"] == scheme}
        last = rows_of_scheme[max(rows_of_scheme)]
        cells = []
        for nbytes in sizes:
            row = rows_of_scheme.get(nbytes)
            cells += [f"{row['seconds'] * 1e3:.1f}", f"{row['speedup']:.2f}"] if row else ["-", "-"]
            cells.append(f"{row['of_ideal']:.2f}" if row and "of_ideal" in row else "-")
        slices = f" x{last['slices']}" if last["slices"] > 1 else ""
        built.add_row(scheme, f"{last['algorithm']}{slices}", *cells)
    return built


def main() -> int:
    """Run the benchmark, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", default=["50mbit", "200mbit", "1gbit", "2gbit"])
    parser.add_argument("--min", default="1M")
    parser.add_argument("--max", default="64M")
    parser.add_argument("--codecs", nargs="+", default=CODECS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2, help="a host")
    parser.add_argument("--json", type=Path)
    tiny = {"rates": ["1gbit"], "max": "1M", "codecs": ["none", "int8:256"], "repeats": 1, "hosts": 2, "ranks": 1}
    options = parse(parser, **tiny)
    try:
        if reason := why_not():
            raise UserError(reason)
        print(*head(Path(__file__)), sep="\n", flush=True)
        rows_of_rates = measure(options)
    except UserError as error:
        print(f"throttled_allreduce: {error}", file=sys.stderr)
        return 2
    console = Console(width=columns(), highlight=False)
    for rate, rows in rows_of_rates.items():
        console.print(table(rate, rows), "")
    if options.json:
        about = {"provenance": provenance(Path(__file__)), "machine": describe_machine()}
        document = {**about, "hosts": options.hosts, "ranks_per_host": options.ranks, "rates": rows_of_rates}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
