"""Loss curves: each scheme over the baseline, along steps or along time."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.plot_style import COLOURS, INK, grid
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Figure
from hpcbench.report.plots.curves import Along, Curve, band_words, bin_width, curve
from hpcbench.report.plots.panels import Panel, grid_of, name, panels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SCHEME = COLOURS[1]
_CLOCK = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))


def loss_figure(cells: Sequence[Cell], along: Along, title: str) -> Figure | None:
    """The figure of both kinds; None where no run has a loss.

    Parameters
    ----------
    cells
        A panel for each scheme of each.
    along
        What the x axis is.
    title
        Of the figure.
    """
    rows = [row for cell in cells for row in cell.rows]
    width = bin_width(rows)
    curves = {id(row): curve(row, along, width) for row in rows}
    panels = [panel for panel in panels_of(cells) if curves[id(panel.row)].points]
    if not panels:
        return None
    scale, unit = (1.0, "") if along == "steps" else _clock(list(curves.values()))
    caption = _caption(panels, curves, width, along)

    def draw(fig: Any) -> None:
        axes = grid_of(fig, [panel.title for panel in panels], height=1.15)
        for axis, panel in zip(axes, panels, strict=True):
            if panel.base is not None and panel.base is not panel.row:
                _draw(axis, curves[id(panel.base)], scale, INK, "D", linewidth=2.4, label=name(panel.base.scheme))
            _draw(axis, curves[id(panel.row)], scale, _SCHEME, "o", linewidth=1.1, label="scheme of the panel")
            grid(axis)
        axes[0].set_ylim(*_limits([curves[id(row)] for panel in panels for row in _rows(panel)]))
        axes[0].set_xlim(left=0)
        fig.supxlabel("step" if along == "steps" else f"time since the first step / {unit}", fontsize="medium")
        fig.supylabel("loss", fontsize="medium")
        handles, labels = axes[0].get_legend_handles_labels()
        runs = max(curves[id(panel.row)].runs for panel in panels)
        fig.legend(handles, labels, loc="outside upper center", ncols=2, title=band_words(runs), title_fontsize=7)

    return Figure(f"loss-over-{along}", title, caption, draw)


def _rows(panel: Panel) -> list[Row]:
    return [panel.row] if panel.base is None else [panel.row, panel.base]


def _draw(axes: "Axes", curve: Curve, scale: float, colour: str, mark: str, *, linewidth: float, label: str) -> None:
    x = [point.x / scale for point in curve.points]
    axes.plot(x, [point.mean for point in curve.points], color=colour, linewidth=linewidth, label=label)
    if curve.runs > 1:
        low, high = [point.low for point in curve.points], [point.high for point in curve.points]
        axes.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
    marks = curve.evaluations
    (drawn,) = axes.plot(
        [point.x / scale for point in marks],
        [point.mean for point in marks],
        color=colour,
        marker=mark,
        linestyle="none",
        markerfacecolor="none" if mark == "D" else colour,
        markersize=5.5 if mark == "D" else 3,
        zorder=4,
        clip_on=False,
    )
    drawn.set_in_layout(False)  # half of the last mark stands outside
    if curve.broken and x:
        axes.plot(x[-1], curve.points[-1].mean, color=colour, marker="X", markersize=7, linestyle="none", zorder=5)


def _limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """Of the y axis: the first tenth of the steps, where all fall alike, may leave the frame."""
    late = [p for curve in curves for p in curve.points[len(curve.points) // 10 :]]
    values = [p.mean for p in late] + [p.mean for curve in curves for p in curve.evaluations]
    low, high = min(values), max(values)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _clock(curves: Sequence[Curve]) -> tuple[float, str]:
    longest = max((curve.points[-1].x for curve in curves if curve.points), default=0.0)
    return next((unit for unit in _CLOCK if longest >= 3 * unit[0]), _CLOCK[-1])


def _caption(panels: Sequence[Panel], curves: dict[int, Curve], width: int, along: Along) -> str:
    counts = sorted({curves[id(row)].runs for panel in panels for row in _rows(panel)})
    bands = "; ".join(band_words(count) for count in counts if count)
    words = ["Training loss of each scheme (thin line) over that of the baseline (thick line).", f"Lines: {bands}."]
    if width > 1:
        words.append(f"Each point is the mean of {width} steps; nothing else is smoothed.")
    else:
        words.append("Every step is shown; nothing is smoothed.")
    if along == "seconds":
        words.append("A step stands at its mean time; evaluations and checkpoints take none.")
    if any(curve.evaluations for curve in curves.values()):
        words.append("Marks: loss on validation data (circle: the scheme, diamond: the baseline).")
    if any(curve.broken for curve in curves.values()):
        words.append("A cross ends a curve whose loss stopped being a number.")
    if any(math.isfinite(p.mean) for curve in curves.values() for p in curve.points[:1]):
        words.append("The first steps may lie above the frame.")
    return " ".join(words)
