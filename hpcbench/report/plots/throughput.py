"""Speed of each scheme relative to the baseline, with intervals: whether compression pays in time."""

import math
from typing import TYPE_CHECKING, Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, INK, SMALL
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Figure
from hpcbench.report.notation import significant
from hpcbench.report.plots.lists import at_the_right, lists
from hpcbench.report.plots.panels import mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE = 8.0
"""Ratio of the ends of the axis above which it is logarithmic."""


def throughput(submission: Submission, cells: list[Cell]) -> Figure | None:
    """A line a scheme; None where nothing is compared with a baseline."""
    compared = [cell for cell in cells if any(row.speed for row in cell.rows)]
    if not compared:
        return None

    def draw(fig: Any) -> None:
        axes = lists(fig, [(cell, cell.rows) for cell in compared], room=0.45)
        ends = [end for cell in compared for row in cell.rows for end in _ends(row)]
        low, high = min(*ends, 0.98), max(*ends, 1.02)
        if high / low > _WIDE:
            axes[0].set_xscale("log")
            axes[0].set_xlim(low / 1.1, high * 1.1)
            axes[0].xaxis.set_major_formatter("{x:g}")
        else:
            room = 0.06 * (high - low)
            axes[0].set_xlim(low - room, high + room)
        for axis, cell in zip(axes, compared, strict=True):
            axis.axvline(1, color=INK, linewidth=1.6, zorder=1)
            for y, row in enumerate(cell.rows):
                _draw(axis, y, row, is_baseline=row.scheme == cell.baseline)
            at_the_right(axis, [significant(row.samples_per_s) + "*" * row.partial for row in cell.rows], "samples/s")
        axes[-1].set_xlabel("speed / speed of the baseline")

    caption = (
        "Samples/s of each scheme over the baseline's, mean of the pairs with its 95 % interval. A filled mark:"
        " is shown to be faster, or not to be. An open mark: neither is shown, or there is one pair only, which has no"
        " interval."
    )
    if any(row.partial for cell in compared for row in cell.rows):
        caption += " * of runs that did not complete; they are compared with nothing."
    return Figure("throughput", "Speed relative to the baseline", caption, draw)


def _ends(row: Row) -> list[float]:
    """What must lie in the frame; an interval may be so wide that it says nothing, and is cut."""
    if row.speed is None:
        return []
    estimate = row.speed.estimate
    ends = [estimate, row.speed.low or estimate, row.speed.high or estimate]
    return [min(max(end, estimate / 4), estimate * 4) for end in ends if math.isfinite(end)]


def _draw(axes: "Axes", y: int, row: Row, *, is_baseline: bool) -> None:
    if is_baseline:
        axes.plot(1, y, marker="s", color=INK, markersize=5)
        return
    speed = row.speed
    if speed is None:
        _say(axes, "not compared" if row.diverged or not row.completed else "no pair with the baseline", 1.0, y)
        return
    if speed.low is None or speed.high is None:
        _say(axes, "1 pair", speed.estimate, y)
    else:
        axes.plot([speed.low, speed.high], [y, y], color=COLOURS[0], linewidth=1.6, solid_capstyle="butt")
    mark(axes, speed.estimate, y, shown=speed.shown != "not shown")


def _say(axes: "Axes", words: str, x: float, y: int) -> None:
    """Words beside a place, on the side that has more room."""
    left = x > sum(axes.get_xlim()) / 2
    axes.annotate(
        words,
        (x, y),
        (-7 if left else 7, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=SMALL,
        color=INK,
    )
