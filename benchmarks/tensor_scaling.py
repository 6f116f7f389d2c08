"""Measure strong and weak scaling of tensor parallelism in one to three dimensions, on 1 to 8 ranks of this machine.

    python benchmarks/tensor_scaling.py [--rates 1gbit ...] [--repeats N] [--json FILE] [--set KEY=VALUE ...] [--tiny]

The runs are defined in studies/tensor-scaling.yaml. With four or more ranks, each virtual host (hpcbench.testing.hosts)
runs two ranks, otherwise one. The links between hosts are limited to each rate in turn (`none`: no limit). All runs
with the same number of ranks train one after the other in the same processes, repeat by repeat, with the schemes in
rotated order. A row contains the median of the repeats, followed by minimum and maximum. The average step time is
defined as in the papers: the time of the forward and backward pass per sample, in seconds. Efficiency is the time on
one rank, divided by the product of the number of ranks and their time. The batch is constant for strong scaling and
grows for weak scaling. The ranks share the cores of this machine, so efficiency only compares the modes. Bytes are the
bytes sent per rank and step.

Requires Linux, root or user namespaces, iproute2, and hpcbench[train,local].
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provenance import head, provenance
from rich.console import Console
from rich.table import Table
from throttled.start import run_files, train
from tiny import parse

from hpcbench.console import columns
from hpcbench.errors import UserError
from hpcbench.testing.hosts import Hosts, why_not
from hpcbench.testing.hosts.rates import bits_per_second

STUDY = Path(__file__).parents[1] / "studies/tensor-scaling.yaml"
TINY = (
    *("train.steps=3", "train.warmup_steps=1", "model.hidden=64", "matrix.scheme=[baseline, naive-int8]", "repeats=1"),
    "matrix.zip=[{layout.tp: [1, 4, 4], layout.tensor: [1d, 1d, 2d], train.global_batch: [4, 4, 4], "
    "train.micro_batch: [4, 4, 4]}]",
)
"""A few runs, on one and on four ranks, because every start of the ranks takes seconds."""
Found = list[dict[str, Any]]
"""One dict per run, with its ranks, mode, batch and rate."""


def measure(runs: Sequence[dict[str, Any]], rates: Sequence[str | None]) -> Found:
    """Train all runs at all rates, and start the processes only once for each number of ranks."""
    measured: Found = []
    for ranks in sorted({run["ranks"] for run in runs}):
        each = 2 if ranks > 2 else 1
        mine = [run for run in runs if run["ranks"] == ranks and (ranks > 1 or run["scheme"]["name"] == "baseline")]
        tasks = [(rate, run) for rate in rates for run in mine]
        with Hosts(ranks // each) as hosts:
            results = train(hosts, tasks, ranks_a_host=each)
        for (_, run), result in zip(tasks, results, strict=True):
            layout, batch = run["layout"], run["train"]["global_batch"]
            measured.append({**result, "ranks": ranks, "mode": layout["tensor"], "batch": batch})
    return measured


def tabulate(measured: Found, rate: str | None, *, strong: bool) -> Table:
    """Make a table of one kind of scaling at one rate."""
    most = max(result["batch"] for result in measured)
    most_ranks = max(result["ranks"] for result in measured)
    rows: dict[tuple[int, str, str], Found] = defaultdict(list)
    for result in measured:
        wanted = most if strong else most * result["ranks"] // most_ranks
        if result["rate"] == rate and result["batch"] == wanted:
            rows[result["ranks"], result["mode"], result["scheme"]].append(result)
    page = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in (
        "ranks",
        "mode",
        "scheme",
        "step ms",
        "ms a sample",
        "efficiency",
        "MB a rank",
        "on the wire",
        "held MB",
    ):
        page.add_column(heading, justify="right")
    alone = [result["seconds"] for key, results in rows.items() if key[0] == 1 for result in results]
    for (ranks, mode, scheme), results in sorted(rows.items()):
        seconds = [result["seconds"] for result in results]
        sent, wire = (
            statistics.mean(sum(d[name] for d in result["traffic"].values()) for result in results) / ranks / 1e6
            for name in ("message_bytes", "wire_bytes")
        )
        page.add_row(
            str(ranks),
            mode,
            scheme,
            f"{_median(seconds) * 1e3:.1f} ({min(seconds) * 1e3:.1f} to {max(seconds) * 1e3:.1f})",
            f"{_median([result['passes'] / result['batch'] for result in results]) * 1e3:.2f}",
            f"{_median(alone) / _median(seconds) / (ranks if strong else 1):.2f}" if alone else "-",
            f"{sent:.3f}",
            f"{wire:.3f}",
            f"{results[0]['held_bytes'] / 1e6:.3f}",
        )
    return page


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def main() -> int:
    """Read the options, measure, and print, and return the exit status."""
    parser = argparse.ArgumentParser(description="Tensor parallelism in one to three dimensions on this machine.")
    parser.add_argument("--rates", nargs="*", default=["1gbit", "200mbit"], metavar="RATE", help="limits of the links")
    parser.add_argument("--repeats", type=int, help="in place of the study's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all runs")
    options = parse(parser, rates=["1gbit"])
    settings = [*(TINY if options.tiny else ()), *options.sets]
    if options.repeats:
        settings.append(f"repeats={options.repeats}")
    try:
        for rate in options.rates:
            bits_per_second(rate)
        if reason := why_not():
            raise UserError(reason)
        rates = [None, *options.rates]
        runs = run_files(STUDY, settings, ranks_a_host=2)
        print(*head(Path(__file__)), sep="\n", flush=True)
        measured = measure(runs, rates)
    except UserError as error:
        print(f"tensor_scaling: {error}", file=sys.stderr)
        return 2
    if options.json:
        content = {"provenance": provenance(Path(__file__)), "settings": settings, "runs": measured}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for strong in (True, False):
        for rate in rates:
            kind = "strong scaling, the same batch" if strong else "weak scaling, a batch that grows with the ranks"
            print(f"\n{kind}; links: {rate or 'no limit'}")
            Console(width=columns(), highlight=False).print(tabulate(measured, rate, strong=strong))
    return 0


if __name__ == "__main__":
    sys.exit(main())
