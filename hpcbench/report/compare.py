"""Schemes against the baseline: pairs, intervals, verdicts.

Only runs of one pairing are compared with each other: they shared seed and allocation. Only completed runs are.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import Any, Literal

from hpcbench.collect.lines import integer, printable
from hpcbench.collect.state import OPEN, State
from hpcbench.collect.submission import Criteria
from hpcbench.report.measures import Measures, Unknown
from hpcbench.report.statistics import Interval, paired_difference, paired_ratio

Speed = Literal["faster", "not faster", "not shown"]
Loss = Literal["as good", "worse", "not shown"]

GOOD = "faster and as good"
WORSE = "faster but worse loss"
NOT_FASTER = "not faster"
NOT_SHOWN = "not shown (too few repeats)"
NO_BASELINE = "not compared (no baseline)"
NO_PAIR = "not compared (no pair with the baseline)"

# Of the runs of a scheme that did not complete, the one to name.
_WORST: tuple[State, ...] = (
    "failed",
    "out of memory",
    "timed out",
    "node failure",
    "preempted",
    "lost",
    "unknown",
    "incomplete",
    "stopped",
    "cancelled",
    "suspended",
    "running",
    "pending",
)


@dataclass(frozen=True)
class Row:
    """One scheme of a cell. A number is None where no run gives it."""

    scheme: str
    runs: tuple[Measures, ...]
    completed: int
    diverged: bool
    """The loss of one of its runs stopped being a number."""
    partial: bool
    """The numbers are of runs that did not complete."""
    samples_per_s: float | None
    """Geometric mean over the runs, so that the ratio of two rows is the mean of their pairs' ratios."""
    tokens_per_s: float | None
    model_flops_per_rank: float | None
    wire_over_message: float | Unknown | None
    loss_valid: float | None
    """Mean over the runs; NaN when one diverged."""
    speed: Interval | None
    """Samples/s over the baseline's."""
    loss: Interval | None
    """Validation loss minus the baseline's, at the last step."""
    loss_margin: float | None
    """Difference of loss that is as good as none."""
    speed_shown: Speed | None
    loss_shown: Loss | None
    verdict: str


@dataclass(frozen=True)
class Cell:
    """The schemes of one cell, the baseline first."""

    values: dict[str, Any]
    baseline: str | None
    """Name of the baseline's scheme; None where no run is of it."""
    rows: tuple[Row, ...]
    criteria: Criteria

    @property
    def runs(self) -> list[Measures]:
        """All runs of the cell."""
        return [run for row in self.rows for run in row.runs]

    def row(self, scheme: str | None) -> Row | None:
        """The row of a scheme."""
        return next((row for row in self.rows if row.scheme == scheme), None)


def speed_verdict(ratio: Interval, margin: float) -> Speed:
    """Whether a ratio of samples/s is shown to be above 1, or to be at most ``1 + margin``."""
    if ratio.low is None or ratio.high is None:
        return "not shown"
    if ratio.low > 1:
        return "faster"
    return "not faster" if ratio.high <= 1 + margin else "not shown"


def loss_verdict(difference: Interval, margin: float) -> Loss:
    """Whether a difference of losses is shown to be below `margin`, or else above 0."""
    if difference.low is None or difference.high is None:
        return "not shown"
    if difference.high < margin:
        return "as good"
    return "worse" if difference.low > 0 else "not shown"


def verdict(speed: Speed, loss: Loss) -> str:
    """The answer for a scheme."""
    if speed == "not faster":
        return NOT_FASTER
    if speed == "not shown" or loss == "not shown":
        return NOT_SHOWN
    return GOOD if loss == "as good" else WORSE


def compare(runs: Sequence[Measures], baseline: str, criteria: Criteria) -> list[Cell]:
    """Group runs by cell and compare each scheme with the baseline.

    Parameters
    ----------
    runs
        All runs of a submission.
    baseline
        Name of the scheme to compare with.
    criteria
        The margins.

    Returns
    -------
    list of Cell
        In the order in which they first appear.
    """
    groups: dict[str, list[Measures]] = {}
    for run in runs:
        groups.setdefault(repr(sorted(run.run.cell.items())), []).append(run)
    return [_cell(group, baseline, criteria) for group in groups.values()]


def _cell(runs: list[Measures], baseline: str, criteria: Criteria) -> Cell:
    schemes: dict[str, list[Measures]] = {}
    for run in sorted(runs, key=lambda r: r.run.scheme != baseline):
        schemes.setdefault(run.run.scheme, []).append(run)
    base = schemes.get(baseline)
    rows = tuple(_row(scheme, own, base, baseline, criteria) for scheme, own in schemes.items())
    return Cell(runs[0].run.cell, baseline if base else None, rows, criteria)


def _row(scheme: str, runs: list[Measures], base: list[Measures] | None, baseline: str, criteria: Criteria) -> Row:
    completed = [run for run in runs if run.run.state == "completed"]
    counted = completed or [run for run in runs if run.samples_per_s]
    diverged = any(run.run.state == "nan" for run in runs)
    losses = [run.loss_valid for run in completed if run.loss_valid is not None]
    speed = loss = margin = speed_shown = loss_shown = None
    if base is not None and scheme != baseline:
        rates = _pairs(completed, base, lambda run: run.samples_per_s)
        if rates:
            speed = paired_ratio([mine for mine, _ in rates], [other for _, other in rates])
            speed_shown = speed_verdict(speed, criteria.speed_margin)
        pairs = _pairs(completed, base, lambda run: run.loss_valid)
        if pairs:
            loss = paired_difference([mine for mine, _ in pairs], [other for _, other in pairs])
            margin = criteria.loss_margin * abs(fmean(other for _, other in pairs))
            loss_shown = loss_verdict(loss, margin)
    if scheme == baseline:
        words = "" if completed else NO_BASELINE
    elif base is None or not any(run.run.state == "completed" for run in base):
        words = NO_BASELINE
    elif speed_shown is None:
        words = NO_PAIR
    else:
        words = verdict(speed_shown, loss_shown or "not shown")
    return Row(
        scheme=scheme,
        runs=tuple(runs),
        completed=len(completed),
        diverged=diverged,
        partial=bool(counted) and not completed,
        samples_per_s=_geometric([run.samples_per_s for run in counted]),
        tokens_per_s=_geometric([run.tokens_per_s for run in counted]),
        model_flops_per_rank=_geometric([run.model_flops_per_rank for run in counted]),
        wire_over_message=_wire([run.wire_over_message for run in counted]),
        loss_valid=math.nan if diverged else _mean(losses),
        speed=speed,
        loss=loss,
        loss_margin=margin,
        speed_shown=speed_shown,
        loss_shown=loss_shown,
        verdict=_with_states(words, runs, len(completed)),
    )


def paired(runs: Sequence[Measures], base: Sequence[Measures]) -> list[tuple[Measures, Measures]]:
    """Completed runs of a scheme, each with the baseline's of the same pairing."""
    own = {run.run.pairing: run for run in reversed(runs) if run.run.state == "completed"}
    others = {run.run.pairing: run for run in reversed(base) if run.run.state == "completed"}
    return [(own[pairing], others[pairing]) for pairing in sorted(own) if pairing in others]


def _pairs(
    runs: Sequence[Measures], base: Sequence[Measures], value: Callable[[Measures], float | None]
) -> list[tuple[float, float]]:
    """Values of each pair that has both."""
    values = [(value(mine), value(other)) for mine, other in paired(runs, base)]
    return [(a, b) for a, b in values if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)]


def _with_states(words: str, runs: list[Measures], completed: int) -> str:
    """The verdict, unless runs diverged or none completed; with the number of those that did not."""
    states = Counter(run.run.state for run in runs)
    total = len(runs)
    if states["nan"]:
        first = next(run for run in runs if run.run.state == "nan")
        step = first.diverged_at or (integer(first.run.log.data("end"), "steps") if first.run.log else None)
        at = f" (NaN at step {step})" if step else " (NaN)"
        return f"diverged{at}" + (f" in {states['nan']} of {total} runs" if states["nan"] < total else "")
    worst = next((state for state in _WORST if states[state]), None)
    if worst is None:
        return words
    if not completed:
        reason = next(run.run.verdict.reason for run in runs if run.run.state == worst)
        return worst if worst in OPEN or not reason else f"{worst}: {printable(reason, 72)}"
    return f"{words} ({states[worst]} of {total} runs {worst})".strip()


def _geometric(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and value > 0 and math.isfinite(value)]
    return geometric_mean(known) if known else None


def _wire(values: Sequence[float | Unknown | None]) -> float | Unknown | None:
    return "unknown" if "unknown" in values else _mean([value for value in values if value != "unknown"])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
