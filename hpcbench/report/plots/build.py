"""All figures of a submission, in the order in which a report shows them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell
from hpcbench.report.document import Figure
from hpcbench.report.plots.error_over_wire import error_over_wire
from hpcbench.report.plots.loss_over_steps import loss_over_steps
from hpcbench.report.plots.loss_over_time import loss_over_time
from hpcbench.report.plots.loss_over_wire import loss_over_wire
from hpcbench.report.plots.scaling import scaling
from hpcbench.report.plots.throughput import throughput
from hpcbench.report.plots.time_split import time_split

Builder = Callable[[Submission, list[Cell]], Figure | None]

ACROSS: tuple[Builder, ...] = (throughput, scaling)
"""Figures that set all cells of a submission side by side."""
OF_A_CELL: tuple[Builder, ...] = (loss_over_steps, loss_over_time, time_split, error_over_wire, loss_over_wire)
"""Figures of the schemes of one cell."""


def figures_across(submission: Submission, cells: list[Cell]) -> list[Figure]:
    """What compares the cells of a submission."""
    return [figure for build in ACROSS if (figure := build(submission, cells)) is not None]


def figures_of(submission: Submission, cells: Sequence[Cell], index: int) -> list[Figure]:
    """What compares the schemes of ``cells[index]``; the names tell the cells apart."""
    found = [build(submission, [cells[index]]) for build in OF_A_CELL]
    suffix = f"-{index + 1}" if len(cells) > 1 else ""
    return [replace(figure, name=f"{figure.name}{suffix}") for figure in found if figure is not None]


def figures(submission: Submission, cells: list[Cell]) -> list[Figure]:
    """All of them."""
    own = [figure for index in range(len(cells)) for figure in figures_of(submission, cells, index)]
    return figures_across(submission, cells) + own
