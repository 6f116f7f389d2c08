"""Report figures, by name. Each builder returns a figure, or None if there is nothing to draw."""

from collections.abc import Callable

from hpcbench.collect.submission import Submission
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell
from hpcbench.report.plots.gain import plot_gain
from hpcbench.report.plots.loss import plot_loss_over_steps, plot_loss_over_time
from hpcbench.report.plots.over_bandwidth import plot_gain_over_bandwidth
from hpcbench.report.plots.over_wire import plot_error_over_wire
from hpcbench.report.plots.speed import plot_scaling, plot_throughput
from hpcbench.report.plots.step import plot_time_split
from hpcbench.report.plots.step_trace import plot_step_trace
from hpcbench.report.plots.synchrony import plot_staleness, plot_time_to_loss
from hpcbench.report.plots.trade_off import plot_trade_off

OF_CELL: dict[str, Callable[[Submission, Cell], Figure | None]] = {
    "trade-off": plot_trade_off,
    "time-split": plot_time_split,
    "loss-over-steps": plot_loss_over_steps,
    "loss-over-time": plot_loss_over_time,
    "step-trace": plot_step_trace,
    "error-over-wire": plot_error_over_wire,
    "gain-over-bandwidth": plot_gain_over_bandwidth,
}
"""Builders of figures about the schemes of a cell."""

OF_SUBMISSION: dict[str, Callable[[Submission, list[Cell]], Figure | None]] = {
    "gain": plot_gain,
    "throughput": plot_throughput,
    "scaling": plot_scaling,
    "time-to-loss": plot_time_to_loss,
    "staleness": plot_staleness,
}
"""Builders of figures about all cells."""
