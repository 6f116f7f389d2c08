"""Measure the exposed time of gradients with and without overlap with the backward pass.

    python benchmarks/overlap.py [--rate 300mbit] [--turns 8] [--tiny]

The layout is data parallel on two virtual hosts with one rank each, so every rank has its own core. In each turn, every
scheme trains with and without overlap in the same processes. For the gradient channel, the table shows the exposed time
and the time during computation, per step and rank. If several buckets are in flight, the time of each is counted.
Requires Linux, root or user namespaces, iproute2, and hpcbench[train,local]. The exit status is 2 if a requirement is
missing.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provenance import provenance
from shared import make_table
from throttled.compare import compare_speeds
from throttled.parts import TINY_STEPS, TWO_REPLICAS
from throttled.start import run_files, train
from throttled.words import shown

from hpcbench.console import show_table
from hpcbench.errors import UserError
from hpcbench.report.statistics import mean_interval, paired_difference
from hpcbench.testing.hosts import Hosts, why_not
from hpcbench.testing.hosts.rates import bits_per_second

SETTINGS = (*TWO_REPLICAS, "train.bucket_mb=0.4", "matrix.scheme=[baseline, zhybrid-16-8]")
RANKS = 2
STUDY = Path(__file__).with_name("throttled_training.yaml")
Found = dict[tuple[str, bool], list[dict[str, float]]]
"""Measurements of each turn, keyed by (scheme, whether overlap is enabled)."""


def main() -> int:
    """Run the benchmark, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="300mbit")
    parser.add_argument("--turns", type=int, help="repeats, 8 by default")
    parser.add_argument("--tiny", action="store_true", help="the same in seconds; its numbers mean nothing")
    options = parser.parse_args()
    turns = options.turns if options.turns is not None else 2 if options.tiny else 8
    try:
        if turns < 1:
            raise UserError(f"--turns {turns}: give 1 or more")
        bits_per_second(options.rate)
        if reason := why_not():
            raise UserError(reason)
        print("\n".join(f"# {key}: {value}" for key, value in provenance(Path(__file__)).items()), flush=True)
        runs = in_turns([*SETTINGS, *(TINY_STEPS if options.tiny else ()), f"repeats={turns}"])
        with Hosts(RANKS) as hosts:
            results = train(hosts, [(options.rate, run) for run in runs], ranks_a_host=1)
    except UserError as error:
        print(f"overlap: {error}", file=sys.stderr)
        return 2
    show(sort(runs, results), options.rate)
    return 0


def in_turns(settings: Sequence[str]) -> list[dict[str, Any]]:
    """Train every run with and without overlap, in alternating order."""
    off, on = (
        run_files(STUDY, [*settings, f"train.overlap={overlap}"], ranks_a_host=1) for overlap in ("false", "true")
    )
    pairs = zip(off, on, strict=True)
    return [run for pair in pairs for run in (pair if pair[0]["repeat"] % 2 else reversed(pair))]


def sort(runs: Sequence[dict[str, Any]], results: Sequence[dict[str, Any]]) -> Found:
    """Return times in milliseconds, in the order of turns: per step, and per step and rank for the gradient channel."""
    times_of_cases: Found = {}
    for asked, result in zip(runs, results, strict=True):
        times = {name: result["traffic"]["DP"][f"{name}_s"] / RANKS * 1e3 for name in ("exposed", "hidden")}
        times_of_cases.setdefault((result["scheme"], asked["train"]["overlap"]), []).append(
            {"step": result["seconds"] * 1e3, "samples_per_s": result["samples_per_s"], **times}
        )
    return dict(sorted(times_of_cases.items()))


def show(times_of_cases: Found, rate: str) -> None:
    """Print the table and the gain of the overlap."""
    turns = len(next(iter(times_of_cases.values())))
    print(f"\ngradients over links of {rate}: ms a step, mean of {turns} turn{'s' * (turns > 1)} (95 % CI)")
    table = make_table("scheme", "overlap", "step", "exposed", "hidden", left=("scheme", "overlap"))
    for (scheme, on), runs_of_case in times_of_cases.items():
        cells = (
            shown(mean_interval([run_times[name] for run_times in runs_of_case]), 1)
            for name in ("step", "exposed", "hidden")
        )
        table.add_row(scheme, "on" if on else "off", *cells)
    show_table(table)
    print()
    schemes = dict.fromkeys(scheme for scheme, _ in times_of_cases)

    def pairs(scheme: str, name: str) -> list[tuple[float, float]]:
        return [
            (on[name], off[name])
            for on, off in zip(times_of_cases[scheme, True], times_of_cases[scheme, False], strict=True)
        ]

    for scheme, finding in compare_speeds(
        {scheme: pairs(scheme, "samples_per_s") for scheme in schemes}, margin=0.01
    ).items():
        exposed = paired_difference(*zip(*pairs(scheme, "exposed"), strict=True))
        verdict = "slower" if finding.slower else "faster" if finding.shown == "faster" else "inconclusive"
        basis = f"5 %, Holm over {len(schemes)} schemes, {finding.pairs} pair{'s' * (finding.pairs > 1)}"
        print(
            f"{scheme}: with overlap {shown(finding, 2)} times as fast ({verdict}; {basis}); "
            f"a rank waits {shown(exposed, 1, '+')} ms a step."
        )
    print("every run's replicas agree")


if __name__ == "__main__":
    sys.exit(main())
