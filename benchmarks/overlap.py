"""What is left to wait for when gradients are reduced during the backward pass: training with overlap on and off.

    python benchmarks/overlap.py [--rate 300mbit] [--turns 2]

Two virtual hosts with one rank each, so that every rank has a core of its own; data parallel, runs in turns. Times are
of the gradients' channel, a step and rank: waited for, and passed while the rank computed (of several buckets at a time
each counts). Needs Linux, root or user namespaces, iproute2, and hpcbench[train,local].
"""

import argparse
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table
from throttled_training import train

from hpcbench.console import columns
from hpcbench.errors import UserError
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.run import run_file
from hpcbench.study.size import Room
from hpcbench.testing.hosts import Hosts

SETTINGS = [
    "repeats=1",
    "train.steps=16",
    "train.bucket_mb=0.4",
    "layout.dp=2",
    "layout.tp=1",
    "layout.pp=1",
    "nodes=2",
    "ranks_per_node=1",
    "matrix.scheme=[baseline, zhybrid-16-8]",
]


def run_files(*, overlap: bool) -> list[dict[str, Any]]:
    """A run of each scheme."""
    study = Path(__file__).with_name("throttled_training.yaml")
    runs = expand(load_study(study, [*SETTINGS, f"train.overlap={str(overlap).lower()}"]), Room("virtual hosts", 1, 1))
    return [
        run_file(run, site="hosts", threads=1, oversubscribe=False, device="cpu", base=study.parent) for run in runs
    ]


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="300mbit")
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    files = [run for _ in range(options.turns) for on in (True, False) for run in run_files(overlap=on)]
    try:
        with Hosts(2, rate=options.rate) as hosts:
            results = train(hosts, files, ranks_a_host=1)
    except UserError as error:
        print(f"overlap: {error}", file=sys.stderr)
        return 2
    found: dict[tuple[str, bool], list[tuple[float, ...]]] = {}
    for asked, result in zip(files, results, strict=True):
        (channel,) = (c for c in result["channels"] if c["dimension"] == "DP")
        own = (channel[name] / result["steps"] / 2 for name in ("exposed_s", "hidden_s"))
        found.setdefault((result["scheme"], asked["train"]["overlap"]), []).append((result["seconds"], *own))
    table = Table(title=f"gradients over links of {options.rate}, {options.turns} turns", box=None, pad_edge=False)
    for heading in ("scheme", "overlap", "step, ms", "exposed, ms", "hidden, ms"):
        table.add_column(heading, justify="left" if heading in ("scheme", "overlap") else "right")
    for (scheme, on), times in sorted(found.items()):
        cells = (f"{fmean(column) * 1e3:.1f}" for column in zip(*times, strict=True))
        table.add_row(scheme, "on" if on else "off", *cells)
    Console(width=columns(), highlight=False).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
