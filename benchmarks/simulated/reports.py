"""Complete reports on studies with known truth: number of reports with a false finding, and of each kind of finding.

A study has seven typical schemes: the baseline, the controls `identity` and `naive-bf16`, and four codecs.
"""

import argparse
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from hpcbench.report.answer import answer
from hpcbench.report.compare import Cell, compare
from hpcbench.report.findings import AS_FAST, LossFinding, SpeedFinding
from hpcbench.report.front import compute_front
from hpcbench.report.looks import LOOKS
from hpcbench.report.measures import Measures
from hpcbench.report.weaknesses import find_weaknesses
from simulated.studies import BASE_LOSS, BASE_RATE, CRITERIA, MARGINS, RUN_NOISE, SHARED, Effect, ar1, planted

SCHEMES = {
    "baseline": "none",
    "identity": "none",
    "naive-bf16": "bf16",
    "naive-int8": "int8:256",
    "naive-zfp8": "zfp:8",
    "naive-zfp16": "zfp:16",
    "naive-mpc": "mpc",
}
NULL: Sequence[Effect] = [(0.0, 0.0)] * len(SCHEMES)
GAIN = math.log(1.3)
TRUTHS: dict[str, Sequence[Effect]] = {
    "nothing differs": NULL,
    "controls gain, codecs gain nothing beyond": [(0, 0), (GAIN, 0), *[(GAIN, 0)] * 5],
    "at the margins": [(0, 0), (0, 0), *[MARGINS] * 3, *[(math.log1p(AS_FAST), -MARGINS[1])] * 2],
    "gains of 1.3 to 1.6": [(0, 0), (0, 0), *[(GAIN + k * 0.07, 0) for k in range(5)]],
    "gains, at a loss at the margin": [(0, 0), (0, 0), *[(GAIN + k * 0.07, MARGINS[1]) for k in range(5)]],
    "gains of 1.05": [(0, 0), (0, 0), *[(math.log(1.05), 0)] * 5],
}
Draw = Callable[[random.Random, int], list[list[float]]]
"""Function that draws the noise of each run, by scheme and repeat, in standard deviations."""


def independent(rng: random.Random, pairs: int) -> list[list[float]]:
    """Draw independent normal values."""
    return [[rng.gauss(0, 1) for _ in range(pairs)] for _ in SCHEMES]


def following(memory: float) -> Draw:
    """Return a draw in which successive repeats of a scheme are correlated."""
    return lambda rng, pairs: [ar1(rng, pairs, memory) for _ in SCHEMES]


def drifting(rng: random.Random, pairs: int) -> list[list[float]]:
    """Draw runs in rotated order, each one standard deviation slower than the previous run of the allocation."""
    count = len(SCHEMES)
    return [[rng.gauss(0, 1) - (k - pair) % count for pair in range(pairs)] for k in range(count)]


def with_outliers(rng: random.Random, pairs: int) -> list[list[float]]:
    """Draw normal values. One run in ten is half as fast."""
    slow = math.log(2) / RUN_NOISE[0]
    return [[rng.gauss(0, 1) - slow * (rng.random() < 0.1) for _ in range(pairs)] for _ in SCHEMES]


DRAWS: dict[str, Draw] = {
    "independent": independent,
    "repeats follow each other, 0.5": following(0.5),
    "repeats follow each other, 0.8": following(0.8),
    "1 % slower from run to run": drifting,
    "one run in ten half as fast": with_outliers,
}


def draw_runs(
    rng: random.Random,
    pairs: int,
    effects: Sequence[Effect] = NULL,
    draw: Draw = independent,
    cells: int = 1,
    spike: tuple[float, float] = (0.0, 0.0),
) -> list[Measures]:
    """Draw the runs of a study, pair by pair.

    Parameters
    ----------
    rng
        Source of randomness.
    pairs
        Number of repeats.
    effects
        Effect of each scheme, beginning with the baseline.
    draw
        Noise of the speed of each run. Losses are independent.
    cells
        Number of cells with the same truth.
    spike
        Probability that a run with a codec ends with a worse loss, and the size of the increase.
    """
    drawn = [(draw(rng, pairs), independent(rng, pairs)) for _ in range(cells)]
    runs = []
    for pair in range(pairs):
        for cell, (speeds, losses) in enumerate(drawn):
            machine, seed = SHARED[0] * rng.gauss(0, 1), SHARED[1] * rng.gauss(0, 1)
            for k, (scheme, codec) in enumerate(SCHEMES.items()):
                speed, loss = effects[k]
                rate = BASE_RATE * math.exp(machine + speed + RUN_NOISE[0] * speeds[k][pair])
                failed = codec not in ("none", "bf16") and rng.random() < spike[0]
                value = BASE_LOSS + seed + loss + RUN_NOISE[1] * losses[k][pair] + spike[1] * failed
                runs.append(planted(f"r{pair}-{scheme}", scheme, f"r{pair}", rate, value, codec, {"cell": cell}, pair))
    return runs


def is_false_speed(finding: SpeedFinding | None, truth: float) -> bool:
    """Return whether a finding about a speed contradicts the true logarithm of the ratio."""
    if finding is None:
        return False
    is_false = {
        "faster": truth <= 0,
        "not faster": truth >= MARGINS[0] or (finding.slower and truth >= 0),
        "as fast": abs(truth) >= math.log1p(AS_FAST),
        "inconclusive": False,
    }
    return is_false[finding.shown]


def is_false_loss(finding: LossFinding | None, truth: float) -> bool:
    """Return whether a finding about a loss contradicts the true difference."""
    if finding is None:
        return False
    is_false = {
        "no worse": abs(truth) >= MARGINS[1],
        "worse": truth < MARGINS[1],
        "better": truth > -MARGINS[1],
        "inconclusive": False,
    }
    return is_false[finding.shown]


@dataclass
class FalseFindings:
    """Counts of reports with a false finding, either against the baseline or between schemes."""

    speed: int = 0
    loss: int = 0
    others: int = 0
    some: int = 0
    reports: int = 0

    def add(self, cells: Iterable[Cell], effects: Sequence[Effect]) -> bool:
        """Count one report, and return whether it contains a false finding."""
        truth = dict(zip(SCHEMES, effects, strict=True))
        speed = loss = others = False
        for cell in cells:
            for row in cell.rows[1:]:
                speed |= is_false_speed(row.speed, truth[row.scheme][0])
                loss |= is_false_loss(row.loss, truth[row.scheme][1])
            for gain in cell.gains:
                others |= gain.faster and truth[gain.scheme][0] <= truth[gain.other][0]
            for duel in cell.duels:
                others |= is_false_speed(duel.speed, truth[duel.scheme][0] - truth[duel.other][0])
                others |= is_false_loss(duel.loss, truth[duel.scheme][1] - truth[duel.other][1])
        self.speed += speed
        self.loss += loss
        self.others += others
        self.some += speed or loss or others
        self.reports += 1
        return speed or loss or others

    @property
    def shares(self) -> list[str]:
        """Return percentages of reports with a false speed, loss, finding between schemes, or any of the three."""
        return [_percent(count, self.reports) for count in (self.speed, self.loss, self.others, self.some)]


def _percent(count: float, total: int) -> str:
    return f"{100 * count / total:.1f}"


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="right" if k else "left")
    return table


_FALSE = ("pairs", "false: speed", "loss", "each other", "any")


def errors(options: argparse.Namespace) -> Table:
    """Count reports with a false finding, for each truth and each kind of noise."""
    table = _table("whole report", "cells", *_FALSE)
    cases = [(truth, "independent", 1, pairs) for truth in TRUTHS for pairs in (3, 5, 8)]
    cases += [(truth, "independent", 9, pairs) for truth in list(TRUTHS)[:4] for pairs in (3, 5, 8)]
    cases += [("nothing differs", draw, 1, pairs) for draw in list(DRAWS)[1:] for pairs in (3, 5, 7, 8)]
    for truth, draw, cells, pairs in cases:
        rng = random.Random(f"{options.seed} {truth} {draw} {cells} {pairs}")
        counts = FalseFindings()
        for _ in range(math.ceil(options.reports / (5 if cells > 1 else 1))):
            runs = draw_runs(rng, pairs, TRUTHS[truth], DRAWS[draw], cells)
            counts.add(compare(runs, "baseline", CRITERIA), TRUTHS[truth])
        label = truth if draw == "independent" else f"{truth}; {draw}"
        table.add_row(label, str(cells), str(pairs), *counts.shares)
    return table


def power(options: argparse.Namespace) -> Table:
    """Count the findings of reports on studies in which compression pays."""
    table = _table("whole report", "cells", "pairs", "faster", "no worse", "pays", "beats baseline")
    for truth in ("gains of 1.3 to 1.6", "gains of 1.05"):
        for cells, pairs in ((1, 3), (1, 5), (1, 8), (9, 3), (9, 5), (9, 8)):
            rng = random.Random(f"{options.seed} power {truth} {cells} {pairs}")
            reports = math.ceil(options.reports / (20 if cells > 1 else 4))
            faster = good = pays = beaten = rows = 0
            for _ in range(reports):
                for cell in compare(draw_runs(rng, pairs, TRUTHS[truth], cells=cells), "baseline", CRITERIA):
                    gaining = [row for row in cell.rows if row.scheme not in ("baseline", "identity")]
                    rows += len(gaining)
                    faster += sum(row.speed_shown == "faster" for row in gaining)
                    good += sum(bool(row.outcome and row.outcome.group == "good") for row in gaining)
                    pays += answer(cell, "local")[0].startswith("Yes.")
                    beaten += bool(compute_front(cell).beaten_by("baseline"))
            shares = _percent(faster, rows), _percent(good, rows)
            table.add_row(
                truth, str(cells), str(pairs), *shares, *(_percent(x, reports * cells) for x in (pays, beaten))
            )
    return table


WAYS = "as the report advises, up to 30 pairs", "at 3, 5, 8, 12, 20 and 30 pairs", "after each repeat, 3 to 30 pairs"
"""Procedures for reading a report repeatedly.

The guaranteed error rate of a report does not hold for the last procedure.
"""


def peeking(options: argparse.Namespace) -> Table:
    """Count reports with a false finding at any look, for growing studies without true differences."""
    table = _table("looks", "false: any", "mean pairs")
    for way in WAYS:
        rng = random.Random(f"{options.seed} {way}")
        reports = math.ceil(options.reports / 4)
        false = used = 0
        for _ in range(reports):
            runs = draw_runs(rng, 30)
            pairs, any_false = 3, False
            while pairs <= 30:
                cells = compare(runs[: pairs * len(SCHEMES)], "baseline", CRITERIA)
                any_false |= FalseFindings().add(cells, NULL)
                following = _next(way, cells, pairs)
                if following is None:
                    break
                pairs = following
            false += any_false
            used += min(pairs, 30)
        table.add_row(way, _percent(false, reports), f"{used / reports:.1f}")
    return table


def _next(way: str, cells: Sequence[Cell], pairs: int) -> int | None:
    """Return the number of pairs at the next look, or None to stop."""
    if way.startswith("after"):
        return pairs + 1
    later = min((look for look in LOOKS if look > pairs), default=None)
    if way.startswith("at"):
        return later
    findings = [finding for row in cells[0].rows[1:] for finding in (row.speed, row.loss) if finding is not None]
    advised = [finding.enough for finding in findings if finding.enough is not None]
    return min(30, max(advised)) if advised and pairs < 30 else None


def spikes(options: argparse.Namespace) -> Table:
    """Count results for schemes whose mean loss is at or beyond the margin because some runs have a worse loss."""
    table = _table("one run in", "worse by", "pairs", "no worse", "without remark", "after a failure")
    for chance, size in ((0.1, 0.25), (0.1, 0.5), (0.2, 0.25)):
        for pairs in (3, 5, 8, 12, 30):
            rng = random.Random(f"{options.seed} {chance} {size} {pairs}")
            reports = math.ceil(options.reports / 4)
            good = bare = failed = rows = 0
            for _ in range(reports):
                (cell,) = compare(draw_runs(rng, pairs, spike=(chance, size)), "baseline", CRITERIA)
                weak = find_weaknesses(cell)
                for row in cell.rows[3:]:
                    is_good = row.loss_shown == "no worse"
                    good += is_good
                    bare += is_good and "rare_failures" not in weak.names(row.scheme)
                    failed += is_good and row.loss is not None and row.loss.worst > size / 2
                    rows += 1
            shares = (_percent(count, rows) for count in (good, bare, failed))
            table.add_row(f"{1 / chance:.0f}", f"{size}", str(pairs), *shares)
    return table


TABLES: dict[str, Callable[[argparse.Namespace], Table]] = {
    "Whole reports: per cent with a false finding (goal: 5)": errors,
    "Whole reports: per cent of schemes and of cells whose truth is found": power,
    "Repeats are added and the report is read again: per cent with a false finding at any look (goal: 5)": peeking,
    "Rare failures: per cent of schemes that are called no worse": spikes,
}
