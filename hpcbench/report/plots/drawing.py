"""Common elements of figures: panels, lists with one line per scheme, and bands over repeats."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hpcbench.contract.text import make_printable
from hpcbench.plot_labels import fitted
from hpcbench.plot_style import COLOURS, INK, SMALL, WIDTH, grid
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.statistics import Interval, is_usable, mean_interval
from hpcbench.report.titles import describe_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LONGEST_NAME = 24


def name(scheme: str) -> str:
    """Shorten a scheme's name for a figure."""
    return make_printable(scheme, LONGEST_NAME)


def remark(row: SchemeRow) -> str:
    """Describe incomplete runs, or return an empty string if all runs completed."""
    total, states = len(row.runs), [run.run.state for run in row.runs if run.run.state != "completed"]
    if not states:
        return ""
    worst = "diverged" if row.diverged else str(states[0])
    return worst if len(states) == total else f"{len(states)} of {total} {worst}"


def list_compared(cell: Cell) -> list[SchemeRow]:
    """List the schemes to draw in panels. The baseline is included only if it is the only scheme."""
    return [row for row in cell.rows if row.scheme != cell.baseline] or list(cell.rows)


def write_heading(row: SchemeRow) -> str:
    """Return the heading of a scheme's panel: the name, with the remark on the next line."""
    return "\n".join(filter(None, (name(row.scheme), remark(row))))


DECIDED = {"faster", "not faster", "as fast", "better", "no worse", "worse"}
"""Significant findings, which are drawn with filled markers."""


def draw_mark(axes: "Axes", x: float, y: float, *, finding: str | None) -> None:
    """Draw the marker of an estimate: filled if the finding is significant, open if inconclusive."""
    axes.plot(
        x,
        y,
        marker="o",
        markersize=5.5,
        color=COLOURS[0],
        markerfacecolor=COLOURS[0] if finding in DECIDED else "none",
        markeredgewidth=1.2,
        linestyle="none",
        zorder=3,
    )


def list_ends(ratio: Interval | None) -> list[float]:
    """List the values of a ratio that the axis limits must include. Very wide intervals are clipped."""
    if ratio is None:
        return []
    ends = [end for end in (ratio.estimate, ratio.low, ratio.high) if end is not None and math.isfinite(end)]
    return [min(max(end, ratio.estimate / 4), ratio.estimate * 4) for end in ends]


def make_panels(fig: Any, titles: Sequence[str], *, height: float) -> "list[Axes]":
    """Create titled axes with shared scales, two per row. `height` is the height of a row in inches."""
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


_LINE = 0.2
"""Height of a scheme's line in inches."""
_NAMES = 84.0
"""Maximum width of a name in points."""
_FIGURES = 40.0
"""Maximum width in points of a value to the right of the frame."""


@dataclass(frozen=True)
class NamedLines:
    """A group of named lines, from top to bottom."""

    title: str
    names: Sequence[str]
    """Name of each line, shortened to the maximum width, with an optional remark below."""
    bold: Sequence[bool] = ()
    """Whether each name is bold. By default, no name is bold."""


def list_axes(fig: Any, groups: Sequence[NamedLines], *, room: float, line: float = _LINE) -> "list[Axes]":
    """Create axes with a shared x scale. A group's names are placed at y = 0, 1, 2 ... from the top.

    `room` is the height above and below the lines, and `line` is the height of each line, both in inches. Lines are
    taller if any name has a remark.
    """
    line += 0.08 * any("\n" in name for group in groups for name in group.names)
    counts = [len(group.names) for group in groups]
    fig.set_size_inches(WIDTH, room + sum(line * count + 0.25 for count in counts))
    axes = list(
        fig.subplots(
            len(groups), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": [c + 0.5 for c in counts]}
        ).flat
    )
    for axis, group in zip(axes, groups, strict=True):
        axis.set_ylim(len(group.names) - 0.4, -0.6)
        axis.set_yticks(range(len(group.names)), list(group.names), linespacing=1.05)
        for bold, label in zip(group.bold, axis.get_yticklabels(), strict=False):
            label.set_fontweight("bold" if bold else "normal")
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        grid(axis, "x")
        if group.title:
            axis.set_title(group.title)
    return axes


def list_schemes(
    fig: Any, cells: Sequence[tuple[Cell, Sequence[SchemeRow]]], *, room: float, line: float = _LINE
) -> "list[Axes]":
    """Create axes with one line per scheme of each cell (see `list_axes`). The baseline's name is bold."""
    groups = [
        NamedLines(
            make_printable(describe_cell(cell.values), 40) if len(cells) > 1 else "",
            [_label(row) for row in rows],
            [row.scheme == cell.baseline for row in rows],
        )
        for cell, rows in cells
    ]
    return list_axes(fig, groups, room=room, line=line)


def fit_name(text: str) -> str:
    """Truncate a name to the maximum width of names."""
    return fitted(make_printable(text, LONGEST_NAME), _NAMES, 7)


def _label(row: SchemeRow) -> str:
    return "\n".join(fit_name(text) for text in (name(row.scheme), remark(row)) if text)


def label_right(axes: "Axes", labels: Sequence[str], head: str) -> None:
    """Write one label per scheme to the right of the frame, below the header `head`."""
    other = axes.secondary_yaxis("right")
    other.set_yticks(range(len(labels)), [fitted(label, _FIGURES, 7) for label in labels])
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


@dataclass(frozen=True)
class Point:
    """Mean over the repeats at an x position, with the bounds of the band."""

    x: float
    mean: float
    low: float
    high: float


def describe_band(runs: int) -> str:
    """Describe a line and its band, for captions."""
    if runs < 2:
        return "1 run"
    return "mean and range of 2 runs" if runs == 2 else f"mean of {runs} runs and its 95 % interval"


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Compute the mean of values and the bounds of its band.

    The band is Student's 95 % interval. For two values, it is their range. For one value, both bounds equal the value.
    """
    middle = average(values)
    if len(values) < 3 or not math.isfinite(middle):
        return middle, min(values), max(values)
    interval = mean_interval(values)
    low, high = (middle if end is None else end for end in (interval.low, interval.high))
    return middle, low, high


def average(values: Iterable[float]) -> float:
    """Return the mean, or NaN if any value is NaN, infinite or too large."""
    numbers = list(values)
    return fmean(numbers) if all(map(is_usable, numbers)) else math.nan
