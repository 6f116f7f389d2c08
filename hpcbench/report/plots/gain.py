"""Figure of a sweep: the gain of each scheme as a function of the swept number."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.plot_style import COLOURS, DASHES, INK, MARKS, grid
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell
from hpcbench.report.findings import SpeedFinding
from hpcbench.report.plots.drawing import DECIDED, make_panels, name
from hpcbench.report.titles import describe_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE = 4.0
"""The axis is logarithmic if the ratio of the largest to the smallest value exceeds this number."""


_Gain = tuple[float, SpeedFinding]
"""Value of the swept key, and gain of a scheme at this value."""


def find_swept_key(cells: Sequence[Cell]) -> str | None:
    """Find the numeric key with the most values, or return None if no numeric key has several values."""
    values = {key: {cell.values.get(key) for cell in cells} for cell in cells for key in cell.values}
    numeric = {key: len(of) for key, of in values.items() if len(of) > 1 and all(map(_is_number, of))}
    return max(numeric, key=lambda key: numeric[key], default=None)


def plot_gain(submission: Submission, cells: list[Cell]) -> Figure | None:
    """Plot one panel per scheme, with one line per combination of other keys, or return None if no number is swept."""
    key = find_swept_key(cells)
    if key is None:
        return None
    panels: dict[str, dict[str, list[_Gain]]] = {}
    for cell in sorted(cells, key=lambda cell: float(cell.values[key])):
        others = describe_cell({other: value for other, value in cell.values.items() if other != key})
        for row in cell.rows:
            if row.speed is not None:
                point = float(cell.values[key]), row.speed
                panels.setdefault(row.scheme, {}).setdefault(others, []).append(point)
    if not panels:
        return None
    series = list(dict.fromkeys(others for curves in panels.values() for others in curves))

    def draw(fig: Any) -> None:
        axes = make_panels(fig, [name(scheme) for scheme in panels], height=1.15)
        places = sorted({x for curves in panels.values() for points in curves.values() for x, _ in points})
        if places[0] > 0 and places[-1] / places[0] > _WIDE:
            axes[0].set_xscale("log", base=2)
            axes[0].set_xticks(places, [f"{place:g}" for place in places])
            axes[0].minorticks_off()
        for axis, curves in zip(axes, panels.values(), strict=True):
            axis.axhline(1, color=INK, linewidth=1.2, zorder=1)
            for others, points in curves.items():
                _draw_gains(axis, points, series.index(others), others)
            grid(axis)
        fig.supxlabel(make_printable(key, 40), fontsize="medium")
        fig.supylabel("speed / speed of the baseline", fontsize="medium")
        if len(series) > 1:
            shown = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes]
            handles = {label: handle for pairs in shown for handle, label in pairs}
            fig.legend(handles.values(), handles, loc="outside upper center", ncols=2)

    caption = (
        f"Samples/s of each scheme divided by the baseline's, for each value of {make_printable(key, 40)}. Bars: "
        "95 % interval over the pairs, absent for a single pair. Filled mark: significantly faster or not "
        "faster. Open mark: inconclusive."
    )
    return Figure("gain", f"Gain over {make_printable(key, 40)}", caption, draw)


def _draw_gains(axes: "Axes", points: Sequence[_Gain], number: int, label: str) -> None:
    colour, marker = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
    dashes = DASHES[number // len(COLOURS) % len(DASHES)]
    axes.plot(
        [x for x, _ in points],
        [speed.estimate for _, speed in points],
        color=colour,
        linestyle=dashes,
        linewidth=1.2,
        label=make_printable(label, 40),
    )
    for x, speed in points:
        if speed.low is not None and speed.high is not None:
            axes.plot([x, x], [speed.low, speed.high], color=colour, linewidth=1.0)
        fill = colour if speed.shown in DECIDED else "none"
        axes.plot(
            x, speed.estimate, marker=marker, markersize=4.5, color=colour, markerfacecolor=fill, linestyle="none"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
