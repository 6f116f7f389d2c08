"""Test the statistics of the report on simulated studies with known truth.

    python benchmarks/report_statistics.py [--studies 6000] [--pairs 3 5 10] [--front-pairs 5 8 10] [--seed 1] [--tiny]

A study consists of a baseline and four schemes. The noise that a pair shares (machine, seed) has a standard deviation
of 10 % in speed and 0.02 in loss. The noise of each run adds 1 % and 0.004. The margins are 1 % of speed and of loss.
There are four kinds of truth: all schemes equal the baseline; all are at the margin; all are 5 % faster with a loss
that is 0.1 worse; or all schemes differ. The noise is normal; heavy-tailed (Student's t with 3 degrees of freedom, same
deviation); or per step, where the speed is the mean of 100 correlated steps (AR(1), 0.8).

The first tables show how many complete reports contain a false finding (see `benchmarks/simulated/reports.py`).

cover: fraction of the 95 % intervals that contain the truth. false: studies in which any scheme received a wrong
verdict. right: schemes that received the correct verdict. At the margin, no verdict is correct. One speed and one loss
of the mixed truth are at the margin.

A second table compares schemes with each other. Two schemes are equal (10 % faster than the baseline, with the same
loss), one is dominated (5 % faster, same loss), and one is on the Pareto front with the equal schemes (15 % faster,
loss 0.1 worse). The table counts the studies in which the report calls the dominated scheme dominated by an equal
scheme, an equal scheme dominated by any scheme, or any of the three nondominated schemes dominated.

A third table tests whether a codec is faster than the control, which has no codec but an algorithm that is 5 % faster
than the baseline. Three schemes with a codec are as fast as the control, and the fourth is 5 % faster. The table counts
the studies in which the report finds that the fourth scheme, or any of the other three, is faster than the control.

A fourth table compares p-values and intervals with those of SciPy and statsmodels on the same values, if statsmodels is
installed. ``series_interval.py`` tests the interval of a run's step time.
"""

import argparse
import importlib
import importlib.util
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from provenance import head
from rich.table import Table
from scipy import stats
from simulated.reports import TABLES, is_false_loss, is_false_speed
from simulated.studies import MARGINS, NOISES, Effect, normal, study
from tiny import parse

from hpcbench.console import show_table
from hpcbench.report.compare import Cell
from hpcbench.report.front import compute_front
from hpcbench.report.significance import holm
from hpcbench.report.statistics import estimate_mean, mean_interval

LARGE = math.log(1.05), 0.1

TRUTHS: dict[str, list[Effect]] = {
    "none": [(0.0, 0.0)] * 4,
    "margin": [MARGINS] * 4,
    "large": [LARGE] * 4,
    "mixed": [(0.0, MARGINS[1]), (MARGINS[0], 0.0), (LARGE[0], -LARGE[1]), (-LARGE[0], LARGE[1])],
}
RIVALS: list[Effect] = [(2 * LARGE[0], 0.0), (2 * LARGE[0], 0.0), (LARGE[0], 0.0), (3 * LARGE[0], LARGE[1])]
"""Two equal schemes, one scheme dominated by both, and one scheme that is faster with a worse loss."""
GAINS: list[Effect] = [*[(LARGE[0], 0.0)] * 4, (2 * LARGE[0], 0.0)]
"""The control without a codec, three codecs without a gain over the control, and one with a gain."""
FOUND, CALLED = 95.0, 5.0
"""Percentage of studies that call a scheme dominated: minimum for the dominated scheme, maximum for the others."""
ENOUGH = 8
"""Smallest number of pairs for which the minimum percentage is required."""


@dataclass
class Count:
    """Counts for one question over all studies."""

    schemes: int = 0
    studies: int = 0
    covered: int = 0
    right: int = 0
    false: int = 0

    def shares(self) -> tuple[float, float, float]:
        """Format the percentages of covering intervals, of studies with a false verdict, and of correct verdicts."""
        return (
            100 * self.covered / self.schemes,
            100 * self.false / self.studies,
            100 * self.right / self.schemes,
        )


def judge(cell: Cell, effects: Sequence[Effect], speed: Count, loss: Count) -> None:
    """Compare the verdicts of a study with the truth."""
    wrong = [False, False]
    for row, (true_speed, true_loss) in zip(cell.rows[1:], effects, strict=True):
        assert row.speed and row.speed.low and row.speed.high and row.loss
        assert row.loss.low is not None and row.loss.high is not None
        speed.covered += row.speed.low <= math.exp(true_speed) <= row.speed.high
        loss.covered += row.loss.low <= true_loss <= row.loss.high
        wrong[0] |= is_false_speed(row.speed, true_speed)
        wrong[1] |= is_false_loss(row.loss, true_loss)
        speed.right += row.speed.shown in (("faster",) if true_speed > 0 else ("not faster", "as fast"))
        loss.right += row.loss.shown == ("no worse" if not true_loss else "worse" if true_loss > 0 else "better")
    for count, false in zip((speed, loss), wrong, strict=True):
        count.schemes += len(effects)
        count.studies += 1
        count.false += false


def studies(options: argparse.Namespace) -> tuple[Table, str]:
    """Make the table of coverage, false verdicts and power, and check the goals for the assumed noise."""
    table = _table("noise", "truth", "pairs", "speed: cover", "false", "right", "loss: cover", "false", "right")
    covered, false = [], []
    for name, noise in NOISES.items():
        for truth, effects in TRUTHS.items():
            for pairs in options.pairs:
                rng = random.Random(f"{options.seed} {name} {truth} {pairs}")
                speed, loss = Count(), Count()
                for _ in range(options.studies if noise is normal else options.studies // 3):
                    judge(study(rng, noise, pairs, effects), effects, speed, loss)
                shares = (*speed.shares(), *loss.shares())
                figures = [f"{share:.1f}" for share in shares]
                if truth == "margin":
                    figures[2] = figures[5] = "-"
                table.add_row(name, truth, str(pairs), *figures)
                if noise is normal:
                    covered += shares[::3]
                    false += shares[1::3]
    chance = 100 * math.sqrt(0.05 * 0.95 / options.studies)
    goals = (
        f"Normal noise: intervals cover {min(covered):.1f} to {max(covered):.1f} % (goal: 95 +- 1.5); false verdicts in"
        f" {max(false):.1f} % of the studies of a row at most (goal: 5; chance adds {chance:.1f} to such a figure)."
    )
    return table, goals


def fronts(options: argparse.Namespace) -> tuple[Table, str]:
    """Count how often dominated and other schemes are called dominated, and check the goals for normal noise."""
    table = _table("noise", "pairs", "dominated: beaten", "one of two equal: beaten", "any that is not: beaten")
    findings, called = [], []
    for name, noise in NOISES.items():
        for pairs in options.front_pairs:
            rng = random.Random(f"{options.seed} front {name} {pairs}")
            count = options.studies if noise is normal else options.studies // 3
            counts = [0, 0, 0]
            for _ in range(count):
                rivals = compute_front(study(rng, noise, pairs, RIVALS))
                equal, other, dominated, trade = (rivals.beaten_by(f"scheme{k}") for k in (1, 2, 3, 4))
                counts[0] += not {"scheme1", "scheme2"}.isdisjoint(dominated)
                counts[1] += bool(equal)
                counts[2] += bool(equal or other or trade)
            shares = [100 * number / count for number in counts]
            table.add_row(name, str(pairs), *(f"{share:.1f}" for share in shares))
            if noise is normal:
                called.append(shares[2])
                findings += shares[:1] if pairs >= ENOUGH else []
    chance = 100 * math.sqrt(CALLED / 100 * (1 - CALLED / 100) / options.studies)
    least = f"{min(findings):.1f}" if findings else "-"
    goals = (
        f"Normal noise: from {ENOUGH} pairs on the dominated scheme is called beaten in {least} % of a row's studies at"
        f" least (goal: {FOUND:.0f}); any other in {max(called):.1f} % at most (goal: {CALLED:.0f}; chance adds"
        f" {chance:.1f})."
    )
    return table, goals


def gains(options: argparse.Namespace) -> tuple[Table, str]:
    """Compute how often a codec is significantly faster than the control without a codec. Compare with the goal."""
    table = _table("noise", "pairs", "codec that gains: shown", "any that does not: shown")
    called = []
    for name, noise in NOISES.items():
        for pairs in options.pairs:
            rng = random.Random(f"{options.seed} gain {name} {pairs}")
            count = options.studies if noise is normal else options.studies // 3
            right = false = 0
            for _ in range(count):
                findings = compute_front(study(rng, noise, pairs, GAINS, ["none", "none", *["int8"] * 4]))
                *idle, real = (findings.gain(f"scheme{k}", "scheme1") for k in (2, 3, 4, 5))
                right += bool(real and real.faster)
                false += any(duel.faster for duel in idle if duel)
            table.add_row(name, str(pairs), f"{100 * right / count:.1f}", f"{100 * false / count:.1f}")
            if noise is normal:
                called.append(100 * false / count)
    chance = 100 * math.sqrt(CALLED / 100 * (1 - CALLED / 100) / options.studies)
    goal = f"goal: {CALLED:.0f}; chance adds {chance:.1f}"
    return table, f"Normal noise: a codec that gains nothing is shown to gain in {max(called):.1f} % at most ({goal})."


def peers(options: argparse.Namespace) -> Table:
    """Compute the largest relative difference from the results of SciPy and statsmodels.

    Without statsmodels, return a dash.
    """
    rng = random.Random(options.seed)
    sizes = [rng.randint(2, 30) for _ in range(options.samples)]
    samples = [[rng.gauss(rng.choice((0, 0.5, 3)), 1) for _ in range(size)] for size in sizes]
    families = [[rng.random() ** 4 for _ in range(rng.randint(1, 20))] for _ in range(options.samples)]
    table = _table("beside", "values", "largest difference")
    against_zero = [_apart(estimate_mean(x).p_two_sided(), stats.ttest_1samp(x, 0).pvalue) for x in samples]
    paired = [_apart(estimate_mean(x).p_two_sided(), stats.ttest_rel(x, [0.0] * len(x)).pvalue) for x in samples]
    bounds = [
        # Relative to the values, which are of order one, because a bound may be close to 0.
        max(map(abs, map(float.__sub__, ours, map(float, stats.ttest_1samp(x, 0).confidence_interval(0.95)))))
        for x in samples
        for ours in [_bounds(x)]
    ]
    try:
        weights = importlib.import_module("statsmodels.stats.weightstats").DescrStatsW
        adjust = importlib.import_module("statsmodels.stats.multitest").multipletests
        equivalent = [_apart(estimate_mean(x).p_within(1), weights(x).ttost_mean(-1, 1)[0]) for x in samples]
        corrected = [
            _apart(ours, theirs)
            for p in families
            for (ours,), theirs in zip(holm([[value] for value in p]), adjust(p, method="holm")[1], strict=True)
        ]
    except ImportError:
        equivalent = corrected = []
    for name, apart in (
        ("scipy.stats.ttest_1samp: p", against_zero),
        ("scipy.stats.ttest_rel: p", paired),
        ("scipy.stats, confidence_interval: bounds", bounds),
        ("statsmodels, ttost_mean: p", equivalent),
        ("statsmodels, multipletests (Holm): adjusted p", corrected),
    ):
        table.add_row(name, str(len(apart) or "-"), f"{max(apart):.1e}" if apart else "-")
    return table


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    findings = mean_interval(values)
    assert findings.low is not None and findings.high is not None
    return findings.low, findings.high


def _apart(ours: float, theirs: float) -> float:
    return abs(ours - float(theirs)) / ours


def _table(first_heading: str, *figures: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first_heading)
    for heading in figures:
        table.add_column(heading, justify="right")
    return table


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--studies", type=int, default=6000, help="studies a row; a third of it where the noise is not normal"
    )
    parser.add_argument("--reports", type=int, default=2000, help="whole reports a row; a fifth of it for nine cells")
    parser.add_argument("--pairs", type=int, nargs="+", default=[3, 5, 10], help="pairs of a scheme")
    parser.add_argument(
        "--front-pairs", type=int, nargs="+", default=[5, 8, 10], help="pairs of schemes against each other"
    )
    parser.add_argument("--samples", type=int, default=1000, help="samples and families of the comparison with peers")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers")
    options = parse(parser, reports=5, studies=30, pairs=[3], front_pairs=[8], samples=20)
    print(*head(Path(__file__), ("scipy", "statsmodels")), sep="\n", flush=True)
    for name, simulated in TABLES.items():
        print(f"{name}\n")
        show_table(simulated(options))
        print()
    for simulated in (studies, fronts, gains):
        table, goals = simulated(options)
        show_table(table)
        print(f"\n{goals}\n")
    show_table(peers(options))
    print()
    if importlib.util.find_spec("statsmodels") is None:
        print("statsmodels: not found, not compared")


if __name__ == "__main__":
    main()
