"""Runs that there is nothing to compare with, each by its log."""

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell
from hpcbench.report.document import Column, Entry, Table
from hpcbench.report.measures import Measures, is_gpu
from hpcbench.report.notation import flops_unit, loss, name, quantity, ratio
from hpcbench.report.tables.tabulate import tabulate


def logs(submission: Submission, cells: list[Cell]) -> Table | None:
    """State, speed and loss of each run; only the columns that a log fills."""
    runs = [run for cell in cells for run in cell.runs]
    unit = flops_unit([run.model_flops_per_rank for run in runs], any(is_gpu(run.run) for run in runs))
    columns = [
        (Column("run", "run", words=True), lambda run: name(run.run.id)),
        (Column("scheme", "scheme", words=True), lambda run: name(run.run.scheme)),
        (Column("state", "state", words=True), lambda run: Entry(run.run.state, run.run.state)),
        (Column("step", "step", words=True), step),
        (Column("model_flops_per_rank", unit.name, group=1), lambda run: quantity(run.model_flops_per_rank, unit.show)),
        (Column("samples_per_s", "samples/s", group=1), lambda run: quantity(run.samples_per_s)),
        (
            Column("wire_over_message", "wire/message", group=1),
            lambda run: Entry(ratio(run.wire_over_message), run.wire_over_message),
        ),
        (Column("loss_train", "loss", group=1), lambda run: quantity(run.loss_train, loss)),
        (Column("loss_valid", "loss (valid)", group=1), lambda run: quantity(run.loss_valid, loss)),
    ]
    return tabulate("logs", "", runs, columns, always=4)


def step(measures: Measures) -> Entry:
    """The last step, of how many."""
    last = measures.run.log.last_step if measures.run.log else None
    if last is None:
        return Entry()
    return Entry(f"{last.step}/{last.steps}" if last.steps else str(last.step), last.step)
