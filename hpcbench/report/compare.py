"""Comparison of schemes with the baseline: pairs, differences at equal steps and at equal time, and verdicts.

Only runs with the same pairing and the same transport are compared. Runs of a pairing share the seed and the
allocation. All compared runs must have completed, and no run of their scheme may have diverged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.contract.criteria import Criteria
from hpcbench.report.duels import Duel
from hpcbench.report.evidence import Evidence, Findings, decide, gather, index_by_pairing
from hpcbench.report.findings import Loss, LossFinding, Speed, SpeedFinding
from hpcbench.report.kinds import SchemeKind, resolve_kind
from hpcbench.report.measures import Measures, select_completed, select_counted
from hpcbench.report.pace import choose_rate
from hpcbench.report.quantities.speed import LOSS_VALID, MODEL_FLOPS, SAMPLES, TOKENS
from hpcbench.report.quantities.traffic import CODED, WIRE
from hpcbench.report.statistics import Interval, average_known_geometrically, geometric_interval, is_usable
from hpcbench.report.traffic import Unknown
from hpcbench.report.transport import separate_transports
from hpcbench.report.verdicts import NO_BASELINE, NO_PAIR, Outcome, describe_verdict, resolve_verdict


@dataclass(frozen=True)
class SchemeRow:
    """A scheme of a cell. A number is None if no run provides it."""

    scheme: str
    runs: tuple[Measures, ...]
    completed: int
    diverged: bool
    """Whether the loss of any run became NaN or infinite."""
    partial: bool
    """Whether the numbers are from incomplete runs."""
    samples_per_s: float | None
    """Geometric mean of samples/s over the runs.

    The ratio of two rows is then the geometric mean of the ratios of their paired runs.
    """
    tokens_per_s: float | None
    model_flops_per_rank: float | None
    wire_over_message: float | Unknown | None
    loss_valid: float | None
    """Mean validation loss over the runs, or NaN if a run diverged."""
    step_seconds: Interval | None
    """Geometric mean of the runs' mean step times, with a Student's t interval over the runs."""
    speed: SpeedFinding | None
    """Samples/s (or another common rate) divided by the baseline's rate, over the steps that both runs counted.

    The speed and both losses are None for a scheme that diverged or has no pair.
    """
    loss: LossFinding | None
    """Difference from the baseline's validation loss at the last step."""
    loss_in_time: LossFinding | None
    """Difference from the baseline's training loss, at the time when the faster run of a pair ended."""
    coded_part: float | Unknown | None
    """Encoded bytes of all runs as a fraction of the bytes of messages with a codec, or None if no message has a
    codec."""
    outcome: Outcome | None
    """Combined finding about speed and loss, or None for the baseline."""
    kind: SchemeKind = SchemeKind.UNKNOWN
    """Complexity of the scheme."""
    base: tuple[Measures, ...] = ()
    """Runs of the baseline, if the scheme can be compared with the baseline."""

    @property
    def verdict(self) -> str:
        """Outcome as text, including the states of the runs."""
        return describe_verdict(self.outcome, self.runs, self.completed, idle=self.idle)

    @property
    def run_names(self) -> list[str]:
        """Names of the runs."""
        return [run.run.id for run in self.runs]

    @property
    def idle(self) -> bool:
        """Whether the scheme has codecs that never encoded anything."""
        return self.coded_part == 0

    @property
    def compared(self) -> bool:
        """Whether the speed can be compared with the baseline's speed."""
        return self.speed is not None and not self.diverged

    @property
    def counted(self) -> list[Measures]:
        """Runs that the numbers are computed from. If no run completed, these are the runs with a known speed."""
        return select_counted(self.runs)

    def average_rate(self, index: int) -> float | None:
        """Return the geometric mean of one of the `Rates` over the counted runs."""
        return average_known_geometrically(run.rates[index] for run in self.counted)

    @property
    def speed_shown(self) -> Speed | None:
        """Finding about the speed, or None if no pair exists."""
        return self.speed.shown if self.speed else None

    @property
    def loss_shown(self) -> Loss | None:
        """Finding about the loss at equal steps, or None if no pair exists."""
        return self.loss.shown if self.loss else None

    @property
    def loss_margin(self) -> float | None:
        """Largest loss difference that is ignored, or None if no pair exists."""
        return self.loss.margin if self.loss else None


def choose_common_rate(rows: Iterable[SchemeRow]) -> int:
    """Return the index of the rate that shows the speeds of several schemes (see `choose_rate`)."""
    return choose_rate([run.rates for row in rows for run in row.counted])


@dataclass(frozen=True)
class Cell:
    """Schemes of a cell, starting with the baseline."""

    values: dict[str, Any]
    baseline: str | None
    """Name of the baseline scheme, or None if the baseline has no run."""
    rows: tuple[SchemeRow, ...]
    criteria: Criteria
    duels: tuple[Duel, ...] = ()
    """Comparisons of all pairs of schemes other than the baseline."""
    gains: tuple[Duel, ...] = ()
    """Speed of each scheme with a codec relative to each control without a codec."""

    @property
    def runs(self) -> list[Measures]:
        """All runs of the cell."""
        return [run for row in self.rows for run in row.runs]

    def row(self, scheme: str | None) -> SchemeRow | None:
        """Return the row of a scheme."""
        return next((row for row in self.rows if row.scheme == scheme), None)


@dataclass(frozen=True)
class ComparedRuns:
    """Runs to compare with a common baseline."""

    runs: Sequence[Measures]
    """All runs of a submission."""
    baseline: str
    """Name of the baseline scheme."""
    criteria: Criteria
    """Margins for speed and loss."""


def compare(runs: Sequence[Measures], baseline: str, criteria: Criteria) -> list[Cell]:
    """Group the runs of a submission by cell, in order of first appearance, and compare the schemes of each cell."""
    (cells,) = compare_all([ComparedRuns(runs, baseline, criteria)])
    return cells


def compare_all(studies: Sequence[ComparedRuns]) -> list[list[Cell]]:
    """Compare the schemes of all studies of a report, with a common significance level for all findings.

    Return the cells of each study.
    """
    drafts = [(i, draft) for i, study in enumerate(studies) for draft in _make_drafts(study)]
    findings = decide([draft.evidence for _, draft in drafts])
    cells: list[list[Cell]] = [[] for _ in studies]
    for (i, draft), findings_of_cell in zip(drafts, findings, strict=True):
        cells[i].append(_make_cell(draft, findings_of_cell, studies[i].criteria))
    return cells


@dataclass(frozen=True)
class _Draft:
    """A cell before its findings are computed."""

    schemes: Mapping[str, list[Measures]]
    baseline: str
    evidence: Evidence


def _make_drafts(study: ComparedRuns) -> list[_Draft]:
    groups: dict[str, list[Measures]] = {}
    for run in separate_transports(study.runs):
        groups.setdefault(repr(sorted(run.run.cell.items())), []).append(run)
    return [_make_draft(group, study.baseline, study.criteria) for group in groups.values()]


def _make_draft(runs: list[Measures], baseline: str, criteria: Criteria) -> _Draft:
    schemes: dict[str, list[Measures]] = {}
    for run in sorted(runs, key=lambda r: r.run.scheme != baseline):
        schemes.setdefault(run.run.scheme, []).append(run)
    compared = {
        name: runs_of_scheme
        for name, runs_of_scheme in schemes.items()
        if name != baseline and not _has_diverged(runs_of_scheme)
    }
    kinds = {name: resolve_kind(runs_of_scheme[0].run, is_baseline=False) for name, runs_of_scheme in compared.items()}
    idle = [name for name, runs_of_scheme in compared.items() if CODED.average(runs_of_scheme) == 0]
    return _Draft(schemes, baseline, gather(compared, schemes.get(baseline, []), kinds, idle, criteria))


def _make_cell(draft: _Draft, findings: Findings, criteria: Criteria) -> Cell:
    base = draft.schemes.get(draft.baseline, [])
    rows = tuple(
        _make_row(scheme, runs_of_scheme, findings, base if scheme != draft.baseline else None)
        for scheme, runs_of_scheme in draft.schemes.items()
    )
    values = next(iter(draft.schemes.values()))[0].run.cell
    return Cell(values, draft.baseline if base else None, rows, criteria, findings.duels, findings.gains)


def _make_row(scheme: str, runs: list[Measures], findings: Findings, base: list[Measures] | None) -> SchemeRow:
    """Return the row of a scheme, where `base` is None for the baseline itself."""
    done, counted_runs = select_completed(runs), select_counted(runs)
    speed, loss = findings.speed.get(scheme), findings.loss.get(scheme)
    if base is None:
        outcome = None if done else NO_BASELINE
    elif not index_by_pairing(base):
        outcome = NO_BASELINE
    elif speed is None:
        outcome = NO_PAIR
    else:
        steady = loss is None or loss.steady
        outcome = resolve_verdict(speed.shown, loss.shown if loss else None, steady=steady, near=speed.near)
    times = [run.step_seconds for run in counted_runs if run.step_seconds and is_usable(run.step_seconds)]
    return SchemeRow(
        scheme=scheme,
        runs=tuple(runs),
        completed=len(done),
        diverged=_has_diverged(runs),
        partial=bool(counted_runs) and not done,
        samples_per_s=SAMPLES.average_or_none(runs),
        tokens_per_s=TOKENS.average_or_none(runs),
        model_flops_per_rank=MODEL_FLOPS.average_or_none(runs),
        wire_over_message=WIRE.average(runs),
        loss_valid=LOSS_VALID.average_or_none(runs),
        step_seconds=geometric_interval(times) if times else None,
        speed=speed,
        loss=loss,
        loss_in_time=findings.loss_in_time.get(scheme),
        coded_part=CODED.average(runs),
        outcome=outcome,
        kind=resolve_kind(runs[0].run, is_baseline=base is None),
        base=tuple(base) if base and not _has_diverged(runs) else (),
    )


def _has_diverged(runs: Sequence[Measures]) -> bool:
    return any(run.run.state == "nan" for run in runs)
