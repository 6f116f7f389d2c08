"""Small multiples: a panel a scheme, with the baseline in each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.collect.lines import printable
from hpcbench.plot_labels import fitted
from hpcbench.plot_style import COLOURS, SMALL, WIDTH
from hpcbench.report.compare import Cell, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST_NAME = 24


def name(scheme: str) -> str:
    """A scheme as it stands in a figure."""
    return printable(scheme, LONGEST_NAME)


def remark(row: Row) -> str:
    """What became of the runs that did not complete; empty where all did."""
    total, states = len(row.runs), [run.run.state for run in row.runs if run.run.state != "completed"]
    if not states:
        return ""
    worst = "diverged" if row.diverged else str(states[0])
    return worst if len(states) == total else f"{len(states)} of {total} {worst}"


def compared(cell: Cell) -> list[Row]:
    """The rows that have a panel: the baseline only where there is nothing else."""
    return [row for row in cell.rows if row.scheme != cell.baseline] or list(cell.rows)


def heading(row: Row) -> str:
    """Of a scheme's panel: its name, and below it what it lacks."""
    return "\n".join(filter(None, (name(row.scheme), remark(row))))


def mark(axes: "Axes", x: float, y: float, *, shown: bool) -> None:
    """The mark of an estimate: filled where it shows something, open where it does not."""
    axes.plot(
        x,
        y,
        marker="o",
        markersize=5.5,
        color=COLOURS[0],
        markerfacecolor=COLOURS[0] if shown else "none",
        markeredgewidth=1.2,
        linestyle="none",
        zorder=3,
    )


def grid_of(fig: Any, titles: Sequence[str], *, height: float) -> "list[Axes]":
    """Axes that share their scales, two beside each other, with a title each.

    Parameters
    ----------
    fig
        Gets its size: the width of a column, `height` inches a row of panels and an inch for the rest.
    titles
        One a panel.
    height
        Inches.
    """
    columns = min(2, len(titles))
    rows = -(-len(titles) // columns)
    most = max(title.count("\n") for title in titles)
    fig.set_size_inches(WIDTH, rows * (height * (1 if columns > 1 else 1.3) + 0.13 * most) + 0.75)
    axes = list(fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    width = 72 * (WIDTH - 0.5) / columns - 8
    for panel, title in zip(axes, titles, strict=False):
        panel.set_title("\n".join(fitted(line, width) for line in title.split("\n")), fontsize=SMALL, linespacing=1.1)
    for empty in axes[len(titles) :]:
        empty.remove()
    if len(titles) < len(axes):
        axes[len(titles) - columns].tick_params(labelbottom=True)
    return axes[: len(titles)]
