"""Energy: joules a sample and a step of each scheme next to its speed, where they go, and what was counted.

`hpcbench.features.energy.report.joules` reads a run's sums from its log.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hpcbench.collect.accounts import JobEnergy, accounts
from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.features.energy import events
from hpcbench.features.energy.report.joules import StepJoules, energy
from hpcbench.present.document import Column, Entry, Field, Table, tabulate
from hpcbench.present.notation import speed_interval
from hpcbench.report.columns import CHANGE, SPEED, IntervalColumn, make_columns, make_samples_column, make_scheme_column
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.evidence import pair_runs
from hpcbench.report.measures import Measures, select_counted
from hpcbench.report.quantities import GEOMETRIC, NUMBER, Average, Exported, Quantity, Value
from hpcbench.report.statistics import Interval, paired_ratio


def _of_one_scope(runs: Sequence[Measures], value: Callable[[Measures], Value]) -> Value:
    """Nothing where runs counted different things: joules of nodes and of GPUs have no mean."""
    scopes = {joules.scope for run in select_counted(runs) if (joules := run.extract(energy))}
    return GEOMETRIC.over(runs, value) if len(scopes) == 1 else None


def _per_sample(run: Measures) -> float | None:
    """Return the joules of a sample; None if the log does not give the batch."""
    joules = run.extract(energy)
    return joules.per_step / run.batch if joules and run.batch else None


JOULES_SAMPLE = Quantity(
    key="joules_per_sample",
    head="J/sample",
    label="J/sample",
    unit="J",
    meaning="Energy of a sequence, over the steps that count, of what the column of the scope says",
    scale=NUMBER,
    run=lambda run: _per_sample(run),
    over_steps="mean of the steps",
    over_runs=Average(GEOMETRIC.description, _of_one_scope),
    better="lower",
    table="energy",
)
JOULES_STEP = replace(
    JOULES_SAMPLE,
    key="joules_per_step",
    head="J/step",
    label="",
    meaning="Energy of a step, over the steps that count, of what the column of the scope says",
    run=lambda run: joules.per_step if (joules := run.extract(energy)) else None,
)
WATTS = replace(
    JOULES_STEP,
    key="watts",
    head="W",
    unit="W",
    meaning="Mean power over the steps that count, of what the column of the scope says",
    run=lambda run: joules.watts if (joules := run.extract(energy)) else None,
    better="",
)


def _part(part: str, words: str) -> Quantity:
    return replace(
        JOULES_STEP,
        key=f"{part}_joules_per_step",
        head=f"J/step, {words}",
        meaning=f"Energy of a step that {words} took, whatever else was counted",
        run=lambda run: joules.parts.get(part) if (joules := run.extract(energy)) else None,
        over_runs=GEOMETRIC,
        group=1,
    )


def _raw(part: str, words: str) -> Quantity:
    """Return what the export says of a run."""
    remark = "; in the counted steps, absent where a counter is missing or has a problem"
    return Quantity(
        key=f"{part}_joules",
        head=f"{part}_joules",
        unit="J",
        meaning=f"Energy that {words} took, all hosts together",
        exported=Exported("runs", "real", events.Energy, remark=remark),
        of_schemes=False,
    )


_PARTS = {"node": "whole nodes", "gpu": "GPUs", "processor": "processors with their memory"}
ENERGY = (
    *(JOULES_SAMPLE, JOULES_STEP, WATTS),
    *(_part(part, words) for part, words in _PARTS.items()),
    *(_raw(part, words) for part, words in _PARTS.items()),
)


def _over_baseline(row: SchemeRow) -> Interval | None:
    """Return an estimate with its interval, and no verdict: speed and loss are what schemes are judged by."""
    pairs = []
    for run, base in pair_runs(row.runs, row.base):
        joules, of_base, a, b = run.extract(energy), base.extract(energy), _per_sample(run), _per_sample(base)
        if joules and of_base and joules.scope == of_base.scope and a is not None and b is not None:
            pairs.append((a, b))
    return paired_ratio([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None


AGAINST_BASELINE = IntervalColumn(
    "energy_ratio",
    CHANGE,
    "Joules a sample over the baseline's in the same pairing, where the same was counted, with its interval.",
    _over_baseline,
    speed_interval,
    "energy_pairs",
)


def beside_speed(rows: Sequence[SchemeRow]) -> list[Field[SchemeRow]]:
    """Return the columns of the comparison: joules a sample, if any run has them."""
    if not any(run.extract(energy) for row in rows for run in row.runs):
        return []
    return [*make_columns([JOULES_SAMPLE], rows, group=0), AGAINST_BASELINE.field()]


_SCOPE = Column("energy_scope", "of", text=True, help="What the joules are of: where nothing is missing, the widest.")
_MOST = 6
"""Sentences about counters that are missing."""
_MORE = 1.05
"""Times its job's energy that runs may have by their own counters: clocks and counters differ a little."""


def table(submission: Submission, cell: Cell) -> Table | None:
    """Energy of each scheme next to its speed; None where no log speaks of energy.

    Where nothing could be counted, the table says why.
    """
    said = [event for run in cell.runs if run.run.log and (event := run.run.log.event(events.Energy))]
    if not said:
        return None
    fields: list[Field[SchemeRow]] = [
        make_scheme_column(),
        make_samples_column(cell.rows),
        SPEED.field(),
        *make_columns([JOULES_SAMPLE], cell.rows),
        AGAINST_BASELINE.field(),
        (_SCOPE, _scope),
    ]
    shown = len(fields)
    if any(run.extract(energy) for run in cell.runs):
        fields += make_columns([one for one in ENERGY if one.table and one is not JOULES_SAMPLE], cell.rows)
    problems = list(dict.fromkeys(make_printable(words) for event in said for words in event.problems or ()))
    more = len(problems) - _MOST
    notes = [*_beside_the_scheduler(submission, cell), *(f"{words}." for words in problems[:_MOST])]
    notes += [f"{more} more of that sort."] if more > 0 else []
    return tabulate("energy", "Energy", cell.rows, fields, notes=notes, always=shown)


def _scope(row: SchemeRow) -> Entry:
    scopes = sorted({joules.scope for run in row.counted if (joules := run.extract(energy))})
    words = ", ".join(make_printable(one, 40) for one in scopes)
    return Entry(words or "-", words or None)


def _beside_the_scheduler(submission: Submission, cell: Cell) -> Iterator[str]:
    """Yield what the scheduler counted of each job that runs of the cell were in, and what their own counters did."""
    if submission.root is None:
        return
    known = accounts(submission.root)
    jobs = dict.fromkeys(run.run.job for run in cell.runs if run.extract(energy) and run.run.job in known)
    for job in jobs:
        own = [joules for run in cell.runs if run.run.job == job and (joules := run.extract(energy))]
        yield _of_a_job(str(job), known[str(job)], own)


def _of_a_job(job: str, account: JobEnergy, own: list[StepJoules]) -> str:
    joules, seconds = sum(one.joules for one in own), sum(one.seconds for one in own)
    scope = " and ".join(sorted({one.scope for one in own}))
    per_second = f" ({account.joules / account.seconds:.4g} W)" if account.seconds else ""
    words = (
        f"{make_printable(job, 40)}: the scheduler counted {account.joules:.4g} J{per_second} for the job; in the "
        f"steps that count, its runs' counters {joules:.4g} J ({joules / seconds:.4g} W) of {scope}"
    )
    if joules > _MORE * account.joules:
        return f"{words}: a part cannot be more than the whole, so one of them is wrong or counts something else."
    return f"{words}."
