"""What the ranks of each scheme are about in a step, and how long they wait for messages by parallel dimension."""

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Column, Field, Table, tabulate
from hpcbench.report.measures import Measures
from hpcbench.report.notation import name, percent, quantity, seconds_unit
from hpcbench.report.phases import PARTS
from hpcbench.report.tables.comparison import SCHEME
from hpcbench.report.tables.over_runs import Value, median
from hpcbench.report.tables.traffic import DIMENSIONS

_MEANINGS = {
    "step": "A step, all of it.",
    "forward": "In the forward passes, with their tensor-parallel traffic.",
    "backward": "In the backward passes, with their traffic and what is computed again.",
    "bubble": "In the passes, waiting for another stage's message until it is there.",
    "reduction": "After the last backward pass, until the gradients are reduced.",
    "optimizer": "From the gradient norm to the new weights, gathered.",
    "other": "What is left of the step.",
}
_NOTE = (
    "Medians over the runs, of means over steps and ranks. Exposed time is part of the phases, not beside them. Idle is"
    " of the passes, to the end of the last stage's; by the schedule it is (p - 1)/(v m + p - 1), for parts that take"
    " equally long and messages that take no time."
)


def phases(submission: Submission, cell: Cell) -> Table | None:
    """Seconds, and parts of the step."""
    unit = seconds_unit(median(row, _part("step")) for row in cell.rows)

    def time(part: str) -> Field[Row]:
        head = f"{part} ({unit.name})" if part == "step" else part
        column = Column(f"{part}_s", head, help=f"{_MEANINGS[part]} In {unit.name}.")
        return column, lambda row: quantity(median(row, _part(part)), unit.show)

    def share(part: str) -> Field[Row]:
        column = Column(f"{part}_part", part, group=1, help=f"{_MEANINGS[part]} As a part of the step.")
        return column, lambda row: quantity(median(row, _part(part, of_step=True)), percent)

    def exposed(dimension: str) -> Field[Row]:
        what = f"Waiting for messages of this dimension, within the phases. In {unit.name}."
        column = Column(f"exposed_{dimension.lower()}_s", f"exposed {dimension}", group=2, help=what)
        return column, lambda row: quantity(median(row, _exposed(dimension)), unit.show)

    def exposed_share(dimension: str) -> Field[Row]:
        what = "Waiting for messages of this dimension, as a part of the step."
        column = Column(f"exposed_{dimension.lower()}_part", f"exposed {dimension}", group=3, help=what)
        return column, lambda row: quantity(median(row, _exposed(dimension, of_step=True)), percent)

    idle = "Part of the passes in which a stage has nothing to compute."
    fields: list[Field[Row]] = [
        (SCHEME, lambda row: name(row.scheme)),
        time("step"),
        *map(time, PARTS),
        *map(share, PARTS),
        (
            Column("idle_part", "idle", group=1, help=idle),
            lambda row: quantity(median(row, lambda run: run.phases.idle if run.phases else None), percent),
        ),
        (
            Column("idle_by_schedule", "by schedule", group=1, help=f"{idle} As the schedule alone would have it."),
            lambda row: quantity(median(row, lambda run: run.phases.idle_by_schedule if run.phases else None), percent),
        ),
        *map(exposed, DIMENSIONS),
        *map(exposed_share, DIMENSIONS),
    ]
    if not any(run.phases for run in cell.runs):
        return None
    title = f"Phases of a step: in {unit.name}, and as parts of it"
    return tabulate("phases", title, cell.rows, fields, notes=[_NOTE])


def _part(part: str, *, of_step: bool = False) -> Value:
    """Seconds, or the part of the step; nothing of a bubble where there is but one stage."""

    def value(run: Measures) -> float | None:
        if run.phases is None or (part == "bubble" and run.phases.idle is None):
            return None
        seconds: float = getattr(run.phases, part)
        return seconds / run.phases.step if of_step else seconds

    return value


def _exposed(dimension: str, *, of_step: bool = False) -> Value:
    def value(run: Measures) -> float | None:
        waited = [one.exposed_s for one in run.dimensions if one.dimension == dimension]
        if run.phases is None or not waited:
            return None
        return sum(waited) / run.phases.step if of_step else sum(waited)

    return value
