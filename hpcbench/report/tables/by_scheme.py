"""Tables of a cell with one row per scheme. Each table shows the quantities declared for it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite

from hpcbench.collect.submission import Submission
from hpcbench.contract.events import Configuration
from hpcbench.contract.text import make_printable
from hpcbench.contract.values import get_text
from hpcbench.present.document import Column, Entry, Field, Table, Tone, tabulate
from hpcbench.present.notation import (
    DisplayUnit,
    between,
    bytes_unit,
    estimate,
    name,
    quantity,
    ratio,
    seconds_unit,
)
from hpcbench.report.columns import (
    CHANGE,
    LOSS,
    LOSS_IN_TIME,
    SCHEME,
    SCHEME_NAME,
    SPEED,
    STEP_TIME,
    make_columns,
    make_rate_column,
    show_finding,
)
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.curves import WINDOW
from hpcbench.report.evidence import pair_runs
from hpcbench.report.measures import Measures, is_gpu
from hpcbench.report.quantities import Quantity
from hpcbench.report.quantities.catalogue import list_of_table
from hpcbench.report.quantities.resources import DEVICE, HOST, HOST_RANK, RESERVED, STEP
from hpcbench.report.quantities.speed import LOSS_TRAIN, LOSS_VALID, STEP_MEDIAN, STEP_P95, STEP_P99
from hpcbench.report.quantities.traffic import DECODE, ENCODE, EXPOSED, EXPOSED_PART, FROM_HOST, HIDDEN, TO_HOST
from hpcbench.report.series import compute_series_interval
from hpcbench.report.statistics import Interval, average_known, paired_difference
from hpcbench.report.titles import find_example
from hpcbench.report.traffic import TrafficSum, find_window, sum_by_axis

_FORMULAS = {"model": "of the model", "hardware": "executed", "neox": "by NeoX"}
"""FLOP/s column names, keyed by formula name in the log's configuration event."""
_PHASES_NOTE = (
    "Values are medians over the runs of the means over steps and ranks. Exposed time is part of the phases. "
    "Idle time is part of the passes, which last until the last stage has ended. If all parts take equally long "
    "and messages take no time, the schedule makes a fraction (p - 1)/(v m + p - 1) idle."
)
_EXPERTS_NOTE = (
    "Model FLOP/s exclude tokens that experts dropped. Executed FLOP/s include the whole capacity of the "
    "experts, even if it is not used."
)
_AXES_NOTE = (
    "Means over the runs, per step and rank. Weights and their gradients are sent over i and e, activations over j and"
    " k."
)
_TONES: dict[str, Tone] = {"no worse": "good", "better": "good", "worse": "bad"}
"""Tone of each loss finding. Inconclusive findings are warnings."""


def tabulate_speed(submission: Submission, cell: Cell) -> Table | None:
    """Make the table of step times, FLOP/s by kind, utilization, and samples and tokens per second.

    Within a cell, these quantities are proportional to each other, so only one is compared with the baseline.
    """
    intervals = {row.scheme: _average_step_time(row) for row in cell.rows}
    unit = seconds_unit(interval.estimate for interval in intervals.values() if interval)
    times = Column(STEP_TIME.key, STEP_TIME.head.format(unit=unit.name), help=STEP_TIME.meaning)
    fields: list[Field[SchemeRow]] = [
        SCHEME_NAME,
        (times, lambda row: estimate(intervals[row.scheme], lambda interval: between(interval, unit.show, ""))),
        *make_columns((STEP_MEDIAN, STEP_P95, STEP_P99), cell.rows, unit=unit),
        make_rate_column(cell.rows, 0),
        SPEED.field(),
        *make_columns(list_of_table("speed"), cell.rows, gpu=is_gpu(find_example(cell))),
    ]
    return tabulate("speed", "Step time and throughput", cell.rows, fields, notes=_write_speed_notes(cell))


def tabulate_phases(submission: Submission, cell: Cell) -> Table | None:
    """Make the table of step phases and exposed communication, in seconds and as fractions of the step."""
    if not any(run.phases for run in cell.runs):
        return None
    unit = STEP.choose_unit(STEP.average(row.runs) for row in cell.rows)
    fields = [SCHEME_NAME]
    for phase in list_of_table("phases", first=(STEP,)):
        fields += make_columns([phase], cell.rows, unit=unit if phase.unit == "s" else None)
    title = f"Phases of a step: in {unit.name}, and as fractions of the step"
    return tabulate("phases", title, cell.rows, fields, notes=[_PHASES_NOTE])


def tabulate_loss(submission: Submission, cell: Cell) -> Table | None:
    """Make the table of losses of completed runs, loss findings, and the number of lost steps."""
    first = (LOSS_TRAIN, LOSS_VALID)
    shown = Column("loss_shown", "shown", text=True, help="Finding about the loss at equal steps.")
    in_time = Column("loss_in_time_shown", "shown", text=True, group=1, help="Finding about that loss.")
    fields: list[Field[SchemeRow]] = [
        SCHEME_NAME,
        *make_columns(first, cell.rows),
        (replace(LOSS.field()[0], head="vs baseline at equal steps (95 % CI)"), LOSS.entry),
        (shown, lambda row: show_finding(row.loss_shown, _TONES)),
        LOSS_IN_TIME.field(group=1),
        (in_time, lambda row: show_finding(row.loss_in_time.shown if row.loss_in_time else None, _TONES)),
        *make_columns(list_of_table("loss", first)[len(first) :], cell.rows),
    ]
    return tabulate("loss", "Training and validation loss", cell.rows, fields, notes=_write_loss_notes(cell))


def _write_loss_notes(cell: Cell) -> list[str]:
    notes = [
        f"{row.scheme} is no worse on average only: the difference of its worst pair is {row.loss.worst:+.4f}."
        for row in cell.rows
        if row.loss and row.loss_shown == "no worse" and not row.loss.steady
    ]
    if any(row.loss_in_time for row in cell.rows):
        notes.append(
            "Equal time is the end of the faster run of a pair. The learning rate of the slower run had not yet decayed"
            f" as far. Losses at equal time are means of the last {100 * WINDOW:.3g} % of the steps."
        )
    return notes


def tabulate_traffic(submission: Submission, cell: Cell) -> Table | None:
    """Make the traffic table: exposed and hidden time, codec time, and bytes by parallel dimension."""
    rows, base, times = cell.rows, cell.row(cell.baseline), (EXPOSED, HIDDEN, ENCODE, DECODE)
    unit = EXPOSED.choose_unit(quantity.average(row.runs) for quantity in times for row in rows)
    links = (TO_HOST, FROM_HOST)
    size = TO_HOST.choose_unit(quantity.compute(run) for quantity in links for run in cell.runs)
    placed = (*times, EXPOSED_PART, *links)
    change = Column("exposed_difference", CHANGE, help="Exposed time minus the baseline's, pair by pair.")
    fields: list[Field[SchemeRow]] = [
        SCHEME_NAME,
        *make_columns([EXPOSED], rows, unit=unit),
        *make_columns([EXPOSED_PART], rows),
        (change, lambda row: estimate(_compute_change(row, base), lambda interval: between(interval, _sign(unit)))),
        *make_columns(times[1:], rows, unit=unit),
        *make_columns(list_of_table("traffic", placed)[len(placed) :], rows),
        *make_columns(links, rows, unit=size),
    ]
    return tabulate("traffic", "Traffic: time per step and rank, and bytes by parallel dimension", rows, fields)


@dataclass(frozen=True)
class _Axis:
    """Traffic of a scheme on one axis, averaged over the runs."""

    row: SchemeRow
    axis: str
    message_bytes: float | None
    wire_over_message: float | None
    exposed_s: float | None
    hidden_s: float | None


def tabulate_axes(submission: Submission, cell: Cell) -> Table | None:
    """Make the table with one row per scheme and axis, or return None if no run has a tensor grid."""
    lines = [line for row in cell.rows for line in _sum_axes(row)]
    if not lines:
        return None
    size = bytes_unit(line.message_bytes for line in lines)
    unit = seconds_unit(seconds for line in lines for seconds in (line.exposed_s, line.hidden_s))
    fields: list[Field[_Axis]] = [
        (SCHEME, lambda line: name(line.row.scheme)),
        (Column("axis", "axis", text=True, help="Axis of the tensor grid."), lambda line: name(line.axis)),
        (
            Column("message_bytes", f"sent ({size.name})", help="Bytes before the codec, per step and rank."),
            lambda line: quantity(line.message_bytes, size.show),
        ),
        (
            Column("wire_over_message", "wire/message", help="Bytes after the codec per byte before the codec."),
            lambda line: quantity(line.wire_over_message, ratio),
        ),
        (
            Column(
                "exposed_s", f"exposed ({unit.name})", help="Time in which a rank waited for messages of this axis."
            ),
            lambda line: quantity(line.exposed_s, unit.show),
        ),
        (
            Column("hidden_s", f"hidden ({unit.name})", help="Time in which messages moved while a rank computed."),
            lambda line: quantity(line.hidden_s, unit.show),
        ),
    ]
    return tabulate("axes", "Tensor grid: traffic by axis", lines, fields, notes=[_AXES_NOTE])


def _sum_axes(row: SchemeRow) -> list[_Axis]:
    traffic_by_axis: dict[str, list[tuple[TrafficSum, int]]] = {}
    for run in row.counted:
        for totals in sum_by_axis(run.channels):
            traffic_by_axis.setdefault(totals.axis or "", []).append((totals, count_shares(run)))
    return [
        _Axis(
            row,
            axis,
            average_known([totals.message_bytes / share if share else None for totals, share in parts]),
            average_known([None if (over := totals.wire_over_message) == "unknown" else over for totals, _ in parts]),
            average_known([totals.exposed_s for totals, _ in parts]),
            average_known([totals.hidden_s for totals, _ in parts]),
        )
        for axis, parts in sorted(traffic_by_axis.items())
    ]


def count_shares(run: Measures) -> int:
    """Return the number of steps times the number of ranks: a run's traffic totals are sums over both."""
    return len(find_window(run.run.log)) * (run.run.settings.ranks or 0) if run.run.log else 0


def tabulate_memory(submission: Submission, cell: Cell) -> Table | None:
    """Make the memory table: peaks compared with the baseline, and persistent memory."""
    peaks = (DEVICE, RESERVED, HOST_RANK, HOST)
    lasting = list_of_table("memory", peaks)[len(peaks) :]
    unit = DEVICE.choose_unit(quantity.average(row.runs) for quantity in lasting for row in cell.rows)
    fields = [SCHEME_NAME]
    for peak in peaks:
        fields += [*make_columns([peak], cell.rows), _make_ratio_column(cell, peak)]
    fields += make_columns(lasting, cell.rows, unit=unit)
    return tabulate("memory", "Memory: peaks, and memory that lasts from step to step", cell.rows, fields)


def _average_step_time(row: SchemeRow) -> Interval | None:
    """Average the step time over a scheme's runs, or over the steps of a single run."""
    if len(row.counted) != 1:
        return row.step_seconds
    times = row.counted[0].step_times()
    return compute_series_interval(times) if times else None


def _write_speed_notes(cell: Cell) -> list[str]:
    several = any(len(row.counted) > 1 for row in cell.rows)
    notes = [
        "Step time: geometric mean of the runs' means, with Student's t interval over the runs."
        if several
        else "Step time: mean of the steps. Its interval accounts for the correlation of successive steps. It is absent"
        " if there are too few steps."
    ]
    events = (run.run.log.read_event(Configuration) for run in cell.runs if run.run.log)
    logged = next((event.flops_formulas for event in events if event.flops_formulas), None)
    formulas = [
        f"FLOP/s {name}: {make_printable(formula, 120)}."
        for kind, name in _FORMULAS.items()
        if (formula := get_text(logged, kind)) is not None
    ]
    return notes + formulas + [_EXPERTS_NOTE] * any(run.run.settings.model.experts for run in cell.runs)


def _compute_change(row: SchemeRow, base: SchemeRow | None) -> Interval | None:
    """Compute the difference in exposed time from the baseline, over pairs with both values."""
    if base is None or row is base:
        return None
    pairs = [(mine.time, other.time) for mine, other in pair_runs(row.runs, base.runs)]
    waits = [(mine.exposed, other.exposed) for mine, other in pairs if mine and other]
    waits = [pair for pair in waits if all(map(isfinite, pair))]
    return paired_difference([mine for mine, _ in waits], [other for _, other in waits]) if waits else None


def _sign(unit: DisplayUnit) -> Callable[[float], str]:
    return lambda seconds: f"{'+' if seconds >= 0 else ''}{unit.show(seconds)}"


def _make_ratio_column(cell: Cell, peak_quantity: Quantity) -> Field[SchemeRow]:
    base = cell.row(cell.baseline)
    least = peak_quantity.average_or_none(base.runs) if base else None

    def change(row: SchemeRow) -> Entry:
        peak = None if row is base else peak_quantity.average_or_none(row.runs)
        return quantity(peak / least if peak is not None and least else None, ratio)

    column = Column(
        f"{peak_quantity.key}_ratio",
        "vs baseline",
        group=peak_quantity.group,
        help="Peak divided by that of the baseline.",
    )
    return column, change
