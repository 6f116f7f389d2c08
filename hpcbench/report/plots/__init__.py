"""The figures of a report, by name. Each builder makes one figure, or None if there is nothing to draw."""

from collections.abc import Callable

from hpcbench.collect.submission import Submission
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell
from hpcbench.report.plots.gain import gain
from hpcbench.report.plots.loss import loss_over_steps, loss_over_time
from hpcbench.report.plots.over_wire import error_over_wire, loss_over_wire
from hpcbench.report.plots.speed import scaling, throughput
from hpcbench.report.plots.step import time_split
from hpcbench.report.plots.step_trace import step_trace
from hpcbench.report.plots.synchrony import staleness, time_to_loss

OF_CELL: dict[str, Callable[[Submission, Cell], Figure | None]] = {
    "loss-over-steps": loss_over_steps,
    "loss-over-time": loss_over_time,
    "time-split": time_split,
    "step-trace": step_trace,
    "error-over-wire": error_over_wire,
    "loss-over-wire": loss_over_wire,
}
"""Figures of the schemes of one cell."""

OF_SUBMISSION: dict[str, Callable[[Submission, list[Cell]], Figure | None]] = {
    "gain": gain,
    "throughput": throughput,
    "scaling": scaling,
    "time-to-loss": time_to_loss,
    "staleness": staleness,
}
"""Figures that show all cells side by side."""
