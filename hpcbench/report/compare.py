"""Compares schemes with the baseline: pairs, differences at equal steps and at equal time, verdicts.

Only runs of one pairing are compared with each other, because they shared seed and allocation. They must be complete,
and no run of their scheme may have diverged.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import Any

from hpcbench.collect.run_log import RunLog
from hpcbench.contract.criteria import Criteria
from hpcbench.report.findings import Key, Loss, LossFinding, Speed, SpeedFinding, losses, speeds
from hpcbench.report.measures import Measures, common_rate, completed, counted
from hpcbench.report.quantities.speed import LOSS_VALID, MODEL_FLOPS, SAMPLES, TOKENS
from hpcbench.report.quantities.traffic import CODED, WIRE
from hpcbench.report.series import series_interval
from hpcbench.report.statistics import Interval, geometric_interval, paired_ratio, usable
from hpcbench.report.traffic import Unknown
from hpcbench.report.verdicts import NO_BASELINE, NO_PAIR, Outcome, in_words, verdict


@dataclass(frozen=True)
class Row:
    """One scheme of a cell. A number is None if no run gives it."""

    scheme: str
    runs: tuple[Measures, ...]
    completed: int
    diverged: bool
    """Whether the loss of one of its runs became NaN or infinite."""
    partial: bool
    """Whether the numbers come from runs that did not complete."""
    samples_per_s: float | None
    """Samples/s: the geometric mean over the runs, so that the ratio of two rows is the mean of their pairs' ratios."""
    tokens_per_s: float | None
    model_flops_per_rank: float | None
    wire_over_message: float | Unknown | None
    loss_valid: float | None
    """Mean validation loss over the runs; NaN if one diverged."""
    step_seconds: Interval | None
    """Geometric mean of the runs' mean step times, with Student's interval over the runs."""
    speed: SpeedFinding | None
    """Samples/s divided by the baseline's, or another rate that both logs give, over the steps that both counted.

    The speed and the losses are None for a scheme that diverged or has no pair.
    """
    loss: LossFinding | None
    """Validation loss minus the baseline's, at the last step."""
    loss_in_time: LossFinding | None
    """Training loss minus the baseline's, when the faster run of a pair ended."""
    coded_part: float | Unknown | None
    """Part of the bytes that went through a codec, of those that the scheme has a codec for, all runs together; None
    without such bytes.
    """
    outcome: Outcome | None
    """What is shown of speed and loss together; None for the baseline."""
    energy: Interval | None = None
    """Joules a sample over the baseline's, of the pairs whose counters are of the same; None where there is none."""

    @property
    def verdict(self) -> str:
        """The outcome in words, with the states of the runs."""
        return in_words(self.outcome, self.runs, self.completed, idle=self.idle)

    @property
    def idle(self) -> bool:
        """Whether the scheme has codecs that encoded nothing."""
        return self.coded_part == 0

    @property
    def compared(self) -> bool:
        """Whether its speed can be compared with the baseline's."""
        return self.speed is not None and not self.diverged

    @property
    def counted(self) -> list[Measures]:
        """The runs that its numbers rest on: the completed ones, else those with a known speed."""
        return counted(self.runs)

    @property
    def speed_shown(self) -> Speed | None:
        """Finding about the speed; None if there is no pair."""
        return self.speed.shown if self.speed else None

    @property
    def loss_shown(self) -> Loss | None:
        """Finding about the loss at equal steps; None if there is no pair."""
        return self.loss.shown if self.loss else None

    @property
    def loss_margin(self) -> float | None:
        """Difference of loss that counts as none; None if there is no pair."""
        return self.loss.margin if self.loss else None


@dataclass(frozen=True)
class Cell:
    """The schemes of one cell, the baseline first."""

    values: dict[str, Any]
    baseline: str | None
    """Name of the baseline's scheme; None if it has no run."""
    rows: tuple[Row, ...]
    criteria: Criteria

    @property
    def runs(self) -> list[Measures]:
        """All runs of the cell."""
        return [run for row in self.rows for run in row.runs]

    def row(self, scheme: str | None) -> Row | None:
        """The row of a scheme."""
        return next((row for row in self.rows if row.scheme == scheme), None)


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
        The cells in the order in which they first appear.
    """
    groups: dict[str, list[Measures]] = {}
    for run in runs:
        groups.setdefault(repr(sorted(run.run.cell.items())), []).append(run)
    return [_cell(group, baseline, criteria) for group in groups.values()]


def _cell(runs: list[Measures], baseline: str, criteria: Criteria) -> Cell:
    schemes: dict[str, list[Measures]] = {}
    for run in sorted(runs, key=lambda r: r.run.scheme != baseline):
        schemes.setdefault(run.run.scheme, []).append(run)
    base = schemes.get(baseline, [])
    compared = {name: own for name, own in schemes.items() if name != baseline and not _diverged(own)}
    findings = _findings(compared, base, criteria)
    rows = tuple(_row(scheme, own, findings, base if scheme != baseline else None) for scheme, own in schemes.items())
    return Cell(runs[0].run.cell, baseline if base else None, rows, criteria)


@dataclass(frozen=True)
class _Findings:
    """The findings of each scheme that has pairs."""

    speed: dict[str, SpeedFinding]
    loss: dict[str, LossFinding]
    loss_in_time: dict[str, LossFinding]


def _findings(schemes: Mapping[str, list[Measures]], base: list[Measures], criteria: Criteria) -> _Findings:
    pairs = {scheme: paired(own, base) for scheme, own in schemes.items()}
    used = {other.run.pairing: other for own in pairs.values() for _, other in own}
    curves = {pairing: curve(other.run.log) for pairing, other in used.items()}

    def in_time(mine: Measures, other: Measures) -> Both:
        return losses_at_equal_time(curve(mine.run.log), curves[other.run.pairing])

    return _Findings(
        speeds(family(pairs, rates), criteria.speed_margin),
        losses(family(pairs, valid_losses), criteria.loss_margin),
        losses(family(pairs, in_time), criteria.loss_margin),
    )


Both = tuple[float | None, float | None]


def rates(mine: Measures, other: Measures) -> Both:
    """Samples/s of both runs, or another rate that both logs give, over the steps that both counted."""
    return common_rate(mine, other) or (None, None)


def valid_losses(mine: Measures, other: Measures) -> Both:
    """Validation losses of both runs after the last step."""
    return mine.loss_valid, other.loss_valid


def family(
    pairs: Mapping[Key, list[tuple[Measures, Measures]]], values: Callable[[Measures, Measures], Both]
) -> dict[Key, list[tuple[float, float]]]:
    """For each scheme, the two values of each pair that has both. Schemes without such a pair are left out."""
    found = {}
    for scheme, own in pairs.items():
        both = [values(mine, other) for mine, other in own]
        known = [(a, b) for a, b in both if a is not None and b is not None and usable(a) and usable(b)]
        if known:
            found[scheme] = known
    return found


def _row(scheme: str, runs: list[Measures], findings: _Findings, base: list[Measures] | None) -> Row:
    """The row of a scheme. `base` is None for the baseline itself."""
    done, own = completed(runs), counted(runs)
    speed, loss = findings.speed.get(scheme), findings.loss.get(scheme)
    if base is None:
        outcome = None if done else NO_BASELINE
    elif not by_pairing(base):
        outcome = NO_BASELINE
    elif speed is None:
        outcome = NO_PAIR
    else:
        outcome = verdict(speed.shown, loss.shown if loss else None)
    times = [run.step_seconds for run in own if run.step_seconds and usable(run.step_seconds)]
    return Row(
        scheme=scheme,
        runs=tuple(runs),
        completed=len(done),
        diverged=_diverged(runs),
        partial=bool(own) and not done,
        samples_per_s=SAMPLES.figure(runs),
        tokens_per_s=TOKENS.figure(runs),
        model_flops_per_rank=MODEL_FLOPS.figure(runs),
        wire_over_message=WIRE.over(runs),
        loss_valid=LOSS_VALID.figure(runs),
        step_seconds=geometric_interval(times) if times else None,
        speed=speed,
        loss=loss,
        loss_in_time=findings.loss_in_time.get(scheme),
        coded_part=CODED.over(runs),
        outcome=outcome,
        energy=_energy(runs, base) if base and not _diverged(runs) else None,
    )


def _energy(runs: Sequence[Measures], base: Sequence[Measures]) -> Interval | None:
    """An estimate with its interval, and no verdict: speed and loss are what schemes are judged by."""
    pairs = [(mine.energy, other.energy) for mine, other in paired(runs, base)]
    same = [(a.per_sample, b.per_sample) for a, b in pairs if a and b and a.scope == b.scope]
    known = [(a, b) for a, b in same if a is not None and b is not None]
    return paired_ratio([a for a, _ in known], [b for _, b in known]) if known else None


def step_time(measures: Measures) -> Interval | None:
    """Mean step time of one run, with an interval from the scatter within the run."""
    times = measures.step_times()
    return series_interval(times) if times else None


def paired(runs: Sequence[Measures], base: Sequence[Measures]) -> list[tuple[Measures, Measures]]:
    """Completed runs of a scheme, each with the baseline's run of the same pairing."""
    own, others = by_pairing(runs), by_pairing(base)
    return [(own[pairing], others[pairing]) for pairing in sorted(own) if pairing in others]


def by_pairing(runs: Sequence[Measures]) -> dict[str, Measures]:
    """Completed runs by their pairing. The first one counts if there are several."""
    return {run.run.pairing: run for run in reversed(completed(runs))}


def _diverged(runs: Sequence[Measures]) -> bool:
    return any(run.run.state == "nan" for run in runs)


WINDOW = 0.05
"""Part of a run's steps whose losses are averaged, because one step's loss depends mostly on its batch."""


@dataclass(frozen=True)
class Curve:
    """Training loss against the time spent in steps, warm-up included."""

    times: list[float]
    """Seconds at which each record ended, in rising order."""
    losses: list[float]

    def loss_at(self, seconds: float, window: int) -> float | None:
        """Mean of the last `window` losses at that time; None before there are enough, or if one is NaN or infinite."""
        done = bisect_right(self.times, seconds)
        last = self.losses[done - window : done] if done >= window else []
        return fmean(last) if last and all(map(usable, last)) else None


def curve(log: RunLog | None) -> Curve | None:
    """The training curve of a run that is known from its first step to its last.

    None for a run that was resumed or has gaps, because the time of the lost steps is not known. A log with one line
    for several steps is fine.
    """
    if log is None or log.resumed_from or not log.steps:
        return None
    numbers = list(log.steps)
    each = numbers[0]
    if each < 1 or numbers[-1] != each * len(numbers) or numbers != list(range(each, numbers[-1] + 1, each)):
        return None
    seconds, losses = log.steps.column("seconds"), log.steps.column("loss")
    if not len(seconds) == len(losses) == len(numbers) or not min(seconds) > 0:
        return None
    times = [each * time for time in accumulate(seconds)]
    # A sum with anything in it that is no number is none.
    return Curve(times, losses) if usable(times[-1]) else None


def losses_at_equal_time(mine: Curve | None, other: Curve | None) -> tuple[float | None, float | None]:
    """Losses of two runs when the faster of them ended; None if a curve is missing or had hardly begun by then."""
    if mine is None or other is None:
        return None, None
    window = max(1, round(WINDOW * min(len(mine.times), len(other.times))))
    until = min(mine.times[-1], other.times[-1])
    return mine.loss_at(until, window), other.loss_at(until, window)
