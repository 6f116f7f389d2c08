"""Measure the coverage of the interval of a run's mean step time, on simulated correlated steps.

    python benchmarks/series_interval.py [--series 4000] [--seed 1] [--tiny]

Steps follow an AR(1) process with a correlation of 0 to 0.95. The noise is normal, or exponential as on a machine with
occasional slow steps.

given: fraction of the runs with an interval. cover: fraction of these 95 % intervals that contain the mean. untrue:
fraction of all runs that have an interval without the mean. width: mean width of the intervals, relative to Student's
interval of the same number of independent steps.
"""

import argparse
import math
import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from provenance import head
from rich.table import Table
from tiny import parse

from hpcbench.console import show_table
from hpcbench.report.series import compute_series_interval
from hpcbench.report.significance import student_t_quantile

STEPS = (20, 50, 200, 600)
CORRELATIONS = (0.0, 0.5, 0.9, 0.95)
_SETTLING = 100
"""Steps that are discarded before the first step, to reach the stationary distribution."""


def normal(rng: random.Random) -> float:
    """Draw normal noise with mean 0 and standard deviation 1."""
    return rng.gauss(0, 1)


def exponential(rng: random.Random) -> float:
    """Draw skewed noise with mean 0 and standard deviation 1."""
    return rng.expovariate(1) - 1


NOISES = {"normal": normal, "exponential": exponential}


def steps(rng: random.Random, n: int, correlation: float, noise: Callable[[random.Random], float]) -> list[float]:
    """Draw `n` values with mean 0 and standard deviation 1. Each value depends on the previous value."""
    values = [0.0]
    for _ in range(_SETTLING + n):
        values.append(correlation * values[-1] + math.sqrt(1 - correlation**2) * noise(rng))
    return values[-n:]


def coverage(series: int, seed: int, noise: str, n: int, correlation: float) -> tuple[float, float, float, float]:
    """Return the columns `given`, `cover`, `untrue` and `width`."""
    rng = random.Random(f"{seed} {noise} {n} {correlation}")
    intervals = [compute_series_interval(steps(rng, n, correlation, NOISES[noise])) for _ in range(series)]
    bounds = [(each.low, each.high) for each in intervals if each.low is not None and each.high is not None]
    if not bounds:
        return 0.0, math.nan, 0.0, math.nan
    covered = sum(low <= 0 <= high for low, high in bounds)
    student = 2 * student_t_quantile(0.975, n - 1) / math.sqrt(n)
    width = fmean(high - low for low, high in bounds) / student
    return len(bounds) / series, covered / len(bounds), (len(bounds) - covered) / series, width


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=4000, help="runs a row")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers")
    options = parse(parser, series=60)
    print(*head(Path(__file__)), sep="\n", flush=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("noise")
    for heading in ("correlation", "steps", "given", "cover", "untrue", "width"):
        table.add_column(heading, justify="right")
    for noise in NOISES:
        for n in STEPS:
            for correlation in CORRELATIONS:
                given, covered, untrue, width = coverage(options.series, options.seed, noise, n, correlation)
                parts = (f"{100 * part:.1f}" for part in (given, covered, untrue))
                figures = (figure.replace("nan", "-") for figure in (*parts, f"{width:.2f}"))
                table.add_row(noise, f"{correlation:.2f}", str(n), *figures)
    show_table(table)


if __name__ == "__main__":
    main()
