"""Figures with a line a scheme, its name at the left and a figure at the right; cells stand below each other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.collect.lines import printable
from hpcbench.plot_labels import fitted
from hpcbench.plot_style import INK, SMALL, WIDTH, grid
from hpcbench.report.compare import Cell, Row
from hpcbench.report.plots.panels import name, remark
from hpcbench.report.titles import cell_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINE = 0.2
"""Inches a scheme."""
_NAMES = 84.0
"""Points that a name may be wide."""
_FIGURES = 40.0
"""Points that a figure at the right may be wide."""


def lists(fig: Any, cells: Sequence[tuple[Cell, Sequence[Row]]], *, room: float, line: float = _LINE) -> "list[Axes]":
    """Axes of a common scale, with the names of the schemes from top to bottom at y = 0, 1, 2 ...

    Parameters
    ----------
    fig
        Gets its size.
    cells
        With the rows to show.
    room
        Inches for what stands above and below.
    line
        Inches a scheme; more where a name has a remark below it.
    """
    line += 0.08 * any(remark(row) for _, rows in cells for row in rows)
    counts = [len(rows) for _, rows in cells]
    fig.set_size_inches(WIDTH, room + sum(line * count + 0.25 for count in counts))
    axes = list(
        fig.subplots(
            len(cells), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": [c + 0.5 for c in counts]}
        ).flat
    )
    for axis, (cell, rows) in zip(axes, cells, strict=True):
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_yticks(range(len(rows)), [_label(row) for row in rows], linespacing=1.05)
        for row, label in zip(rows, axis.get_yticklabels(), strict=True):
            label.set_fontweight("bold" if row.scheme == cell.baseline else "normal")
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        grid(axis, "x")
        if len(cells) > 1:
            axis.set_title(printable(cell_words(cell.values), 40))
    return axes


def _label(row: Row) -> str:
    return "\n".join(fitted(words, _NAMES, 7) for words in (name(row.scheme), remark(row)) if words)


def at_the_right(axes: "Axes", words: Sequence[str], head: str) -> None:
    """A figure a scheme, beyond the frame."""
    other = axes.secondary_yaxis("right")
    other.set_yticks(range(len(words)), [fitted(word, _FIGURES, 7) for word in words])
    other.tick_params(length=0)
    other.spines["right"].set_visible(False)
    axes.annotate(
        head,
        (1, 1),
        (3, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="left",
        va="bottom",
        fontsize=SMALL,
        color=INK,
    )
