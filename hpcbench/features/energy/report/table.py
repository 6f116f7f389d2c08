"""Table of the energy of each scheme: joules per sample, joules per step for each part, and speed.

`hpcbench.features.energy.report.joules` reads the energy of a run from its log.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hpcbench.collect.accounts import JobEnergy, accounts
from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.features.energy import events
from hpcbench.features.energy.report.joules import StepJoules, read_energy
from hpcbench.present.document import Column, Entry, Field, Table, tabulate
from hpcbench.present.notation import speed_interval
from hpcbench.report.columns import CHANGE, SCHEME_NAME, SPEED, IntervalColumn, make_columns, make_rate_column
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.evidence import pair_runs
from hpcbench.report.measures import Measures, select_counted
from hpcbench.report.quantities import GEOMETRIC, NUMBER, Average, Exported, Quantity, Value
from hpcbench.report.statistics import Interval, paired_ratio


def _average_in_one_scope(runs: Sequence[Measures], value: Callable[[Measures], Value]) -> Value:
    """Average over runs. Return None if the scopes differ, because node energy and GPU energy are not comparable."""
    scopes = {joules.scope for run in select_counted(runs) if (joules := run.extract(read_energy))}
    return GEOMETRIC.over(runs, value) if len(scopes) == 1 else None


def _per_sample(run: Measures) -> float | None:
    """Return the joules per sample, or None if the batch size is unknown."""
    joules = run.extract(read_energy)
    return joules.per_step / run.basis.batch if joules and run.basis.batch else None


JOULES_SAMPLE = Quantity(
    key="joules_per_sample",
    head="J/sample",
    label="J/sample",
    unit="J",
    meaning="Energy per sequence in the counted steps, for the hardware in column scope",
    scale=NUMBER,
    run=lambda run: _per_sample(run),
    over_steps="mean of the steps",
    over_runs=Average(GEOMETRIC.description, _average_in_one_scope),
    better="lower",
    table="energy",
)
JOULES_STEP = replace(
    JOULES_SAMPLE,
    key="joules_per_step",
    head="J/step",
    label="",
    meaning="Mean energy of the counted steps, for the hardware in column scope",
    run=lambda run: joules.per_step if (joules := run.extract(read_energy)) else None,
)
WATTS = replace(
    JOULES_STEP,
    key="watts",
    head="W",
    unit="W",
    meaning="Mean power over the counted steps, for the hardware in column scope",
    run=lambda run: joules.watts if (joules := run.extract(read_energy)) else None,
    better="",
)


def _part(part: str, consumer: str) -> Quantity:
    return replace(
        JOULES_STEP,
        key=f"{part}_joules_per_step",
        head=f"J/step, {consumer}",
        meaning=f"Energy of a step in {consumer}, for any scope",
        run=lambda run: joules.parts.get(part) if (joules := run.extract(read_energy)) else None,
        over_runs=GEOMETRIC,
        group=1,
    )


def _raw(part: str, consumer: str) -> Quantity:
    """Declare the exported column that contains the joules of a part."""
    remark = "; in the counted steps; absent if a counter is missing or has a problem"
    return Quantity(
        key=f"{part}_joules",
        head=f"{part}_joules",
        unit="J",
        meaning=f"Energy of {consumer}, all hosts together",
        exported=Exported("runs", "real", events.Energy, remark=remark),
        of_schemes=False,
    )


_PARTS = {"node": "whole nodes", "gpu": "GPUs", "processor": "processors with their memory"}
ENERGY = (
    *(JOULES_SAMPLE, JOULES_STEP, WATTS),
    *(_part(part, consumer) for part, consumer in _PARTS.items()),
    *(_raw(part, consumer) for part, consumer in _PARTS.items()),
)


def _over_baseline(row: SchemeRow) -> Interval | None:
    """Return the energy ratio to the baseline with its confidence interval. Verdicts ignore energy."""
    pairs = []
    for run, base in pair_runs(row.runs, row.base):
        joules, of_base, a, b = run.extract(read_energy), base.extract(read_energy), _per_sample(run), _per_sample(base)
        if joules and of_base and joules.scope == of_base.scope and a is not None and b is not None:
            pairs.append((a, b))
    return paired_ratio([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None


AGAINST_BASELINE = IntervalColumn(
    "energy_ratio",
    CHANGE,
    "Joules per sample divided by those of the baseline in the same pairing and scope, with the interval.",
    _over_baseline,
    speed_interval,
    "energy_pairs",
)


def make_speed_columns(rows: Sequence[SchemeRow]) -> list[Field[SchemeRow]]:
    """Return the energy columns of the comparison table: joules per sample, if any run measured energy."""
    if not any(run.extract(read_energy) for row in rows for run in row.runs):
        return []
    return [*make_columns([JOULES_SAMPLE], rows, group=0), AGAINST_BASELINE.field()]


_SCOPE = Column(
    "energy_scope", "of", text=True, help="Hardware whose energy was summed: the widest scope without missing counters."
)
_MOST = 6
"""Maximum number of notes about missing counters."""
_MORE = 1.05
"""Largest plausible ratio of the runs' energy to the job's energy.

The value exceeds 1 because clocks and counters differ slightly.
"""


def tabulate_energy(submission: Submission, cell: Cell) -> Table | None:
    """Tabulate energy and speed of each scheme. Return None if no run measured energy."""
    if not any(run.extract(read_energy) for run in cell.runs):
        return None
    fields: list[Field[SchemeRow]] = [
        SCHEME_NAME,
        make_rate_column(cell.rows),
        SPEED.field(),
        *make_columns([JOULES_SAMPLE], cell.rows),
        AGAINST_BASELINE.field(),
        (_SCOPE, _scope),
    ]
    shown = len(fields)
    fields += make_columns(
        [quantity for quantity in ENERGY if quantity.table and quantity is not JOULES_SAMPLE], cell.rows
    )
    problems = list_problems(cell)
    more = len(problems) - _MOST
    notes = [*_compare_with_scheduler(submission, cell), *(f"{problem}." for problem in problems[:_MOST])]
    notes += [f"{more} more notes of this kind."] if more > 0 else []
    return tabulate("energy", "Energy", cell.rows, fields, notes=notes, always=shown)


def list_problems(cell: Cell) -> list[str]:
    """Return the problems of the energy counters of all runs, without final periods."""
    logged = [event for run in cell.runs if run.run.log and (event := run.run.log.event(events.Energy))]
    return list(dict.fromkeys(make_printable(problem) for event in logged for problem in event.problems or ()))


def _scope(row: SchemeRow) -> Entry:
    scopes = sorted({joules.scope for run in row.counted if (joules := run.extract(read_energy))})
    scope_text = ", ".join(make_printable(scope, 40) for scope in scopes)
    return Entry(scope_text or "-", scope_text or None)


def _compare_with_scheduler(submission: Submission, cell: Cell) -> Iterator[str]:
    """For each job of the cell, compare the energy that the scheduler reports with the energy of the runs."""
    if submission.root is None:
        return
    job_energies = accounts(submission.root)
    jobs = dict.fromkeys(run.run.job for run in cell.runs if run.extract(read_energy) and run.run.job in job_energies)
    for job in jobs:
        joules_of_runs = [joules for run in cell.runs if run.run.job == job and (joules := run.extract(read_energy))]
        yield _describe_job(str(job), job_energies[str(job)], joules_of_runs)


def _describe_job(job: str, account: JobEnergy, joules_of_runs: list[StepJoules]) -> str:
    joules, seconds = sum(run.joules for run in joules_of_runs), sum(run.seconds for run in joules_of_runs)
    scope = " and ".join(sorted({run.scope for run in joules_of_runs}))
    per_second = f" ({account.joules / account.seconds:.4g} W)" if account.seconds else ""
    sentence = (
        f"{make_printable(job, 40)}: the scheduler measured {account.joules:.4g} J{per_second} for the job. The "
        f"counters of its runs measured {joules:.4g} J ({joules / seconds:.4g} W) of {scope} in the counted steps"
    )
    if joules > _MORE * account.joules:
        return (
            f"{sentence}. This is more than the energy of the whole job, so one of the two is wrong or covers "
            "different hardware."
        )
    return f"{sentence}."
