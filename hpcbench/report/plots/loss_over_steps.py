"""Loss against steps: what compression does to convergence."""

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell
from hpcbench.report.document import Figure
from hpcbench.report.plots.loss import loss_figure


def loss_over_steps(submission: Submission, cell: Cell) -> Figure | None:
    """A panel a scheme; None where no run has a loss."""
    return loss_figure(cell, "steps", "Loss against steps")
