"""Loss against time: whether what compression gains is worth what it costs."""

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell
from hpcbench.report.document import Figure
from hpcbench.report.plots.loss import loss_figure


def loss_over_time(submission: Submission, cell: Cell) -> Figure | None:
    """A panel a scheme; None where no run has losses with times."""
    return loss_figure(cell, "seconds", "Loss against time")
