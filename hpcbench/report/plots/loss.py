"""Loss curves of each scheme and the baseline, as functions of steps or time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, INK, grid
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.measures import Measures
from hpcbench.report.plots.drawing import (
    Point,
    average,
    describe_band,
    list_compared,
    make_panels,
    spread,
    write_heading,
)
from hpcbench.report.quantities.speed import LOSS_TRAIN
from hpcbench.report.statistics import is_usable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Along = Literal["steps", "seconds"]
MOST_POINTS = 40
"""Maximum number of points per curve. More points would not be visible, and averaging smooths the curve."""


@dataclass(frozen=True)
class LossCurve:
    """Loss curve of a scheme."""

    points: tuple[Point, ...]
    """Points before the first NaN or infinite loss."""
    evaluations: tuple[Point, ...]
    """Losses on validation data."""
    broken: bool
    """Whether a NaN or infinite loss ended the curve."""
    runs: int
    """Number of repeats that are averaged."""


def list_runs(row: SchemeRow) -> list[Measures]:
    """List the runs to draw: completed and diverged runs or, if there are none, all runs with a loss."""
    logged = [run for run in row.runs if run.run.log is not None and run.run.log.steps.column("loss")]
    return [run for run in logged if run.run.state in ("completed", "nan")] or logged


def choose_bin_width(rows: Sequence[SchemeRow]) -> int:
    """Choose the number of steps per point, for all curves of a figure."""
    lasts = [run.run.log.steps.last for row in rows for run in list_runs(row) if run.run.log]
    longest = max((last.step for last in lasts if last), default=1)
    return max(1, -(-longest // MOST_POINTS))


def compute_curve(row: SchemeRow, along: Along, width: int) -> LossCurve:
    """Compute the loss curve of a scheme, with one point per `width` steps.

    `along` selects the x axis: step number or seconds since the start. Resumed runs are excluded from curves against
    time, because their logs do not contain the times of earlier steps.
    """
    runs = [run for run in list_runs(row) if along == "steps" or not (run.run.log and run.run.log.resumed_from)]
    places: dict[int, list[tuple[float, float]]] = {}
    evaluated: dict[int, list[tuple[float, float]]] = {}
    for run in runs:
        path = _read_path(run, along)
        bins: dict[int, list[tuple[float, float]]] = {}
        for step, (x, loss) in path.items():
            bins.setdefault((step - 1) // width, []).append((x, loss))
        for k, inside in bins.items():
            places.setdefault(k, []).append((fmean(x for x, _ in inside), average(loss for _, loss in inside)))
        for step, loss in run.run.log.evaluations.items() if run.run.log else ():
            if step in path and step:  # the loss of the untrained model (step 0) would extend the scale
                evaluated.setdefault(step, []).append((path[step][0], loss))
    points = [_average_point(places[k]) for k in sorted(places)]
    end = next((k for k, point in enumerate(points) if not math.isfinite(point.mean)), len(points))
    marks = [
        _average_point(evaluated[step]) for step in sorted(evaluated) if end == len(points) or (step - 1) // width < end
    ]
    finite = tuple(mark for mark in marks if math.isfinite(mark.mean))
    return LossCurve(tuple(points[:end]), finite, end < len(points), len(runs))


def _average_point(values: Sequence[tuple[float, float]]) -> Point:
    return Point(fmean(x for x, _ in values), *spread([y for _, y in values]))


def _read_path(run: Measures, along: Along) -> dict[int, tuple[float, float]]:
    """Read the x value and loss of each step of a run."""
    log = run.run.log
    if log is None:
        return {}
    if along == "steps":
        return {int(step): (step, loss) for step, loss in sorted(log.steps.columns("step", "loss"))}
    path: dict[int, tuple[float, float]] = {}
    passed, before = 0.0, 0.0
    for step, loss, seconds in sorted(log.steps.columns("step", "loss", "seconds"), key=lambda row: row[0]):
        if not (is_usable(seconds) and seconds >= 0):
            continue
        # For example, a line after every ten steps contains the mean time of the ten steps.
        passed += seconds * (step - before)
        before = step
        path[int(step)] = (passed, loss)
    return path


_SCHEME = COLOURS[1]
_WORDS: dict[Along, str] = {"steps": "steps", "seconds": "time"}
_CLOCK = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))


def plot_loss_over_steps(submission: Submission, cell: Cell) -> Figure | None:
    """Plot one panel per scheme, or return None if no run has a loss."""
    return _plot(cell, "steps")


def plot_loss_over_time(submission: Submission, cell: Cell) -> Figure | None:
    """Plot one panel per scheme, or return None if no run has losses with times."""
    return _plot(cell, "seconds")


def _plot(cell: Cell, along: Along) -> Figure | None:
    width = choose_bin_width(cell.rows)
    curves = {row.scheme: compute_curve(row, along, width) for row in cell.rows}
    base = curves.get(cell.baseline or "")
    panels = [row for row in list_compared(cell) if curves[row.scheme].points]
    if not panels:
        return None
    shown = [curves[row.scheme] for row in panels] + [curve for curve in (base,) if curve and curve.points]
    scale, unit = (1.0, "") if along == "steps" else _choose_clock(shown)

    def draw(fig: Any) -> None:
        axes = make_panels(fig, [write_heading(row) for row in panels], height=1.15)
        for axis, row in zip(axes, panels, strict=True):
            if base is not None and row.scheme != cell.baseline:
                _draw(axis, base, scale, INK, "D", linewidth=2.4, label="baseline")
            _draw(axis, curves[row.scheme], scale, _SCHEME, "o", linewidth=1.1, label="scheme of the panel")
            grid(axis)
        axes[0].set_ylim(*_compute_limits(shown))
        axes[0].set_xlim(left=0)
        fig.supxlabel("step" if along == "steps" else f"time since the first step / {unit}", fontsize="medium")
        fig.supylabel(LOSS_TRAIN.label, fontsize="medium")
        bands = "; ".join(describe_band(count) for count in sorted({curve.runs for curve in shown}))
        handles, labels = axes[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=2, title=bands, title_fontsize=7)

    word = _WORDS[along]
    return Figure(f"loss-over-{word}", f"Loss against {word}", _write_caption(shown, width, along), draw)


def _draw(
    axes: "Axes", curve: LossCurve, scale: float, colour: str, mark: str, *, linewidth: float, label: str
) -> None:
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
    drawn.set_in_layout(False)  # half of the last marker lies outside the axes
    if curve.broken and x:
        axes.plot(x[-1], curve.points[-1].mean, color=colour, marker="X", markersize=7, linestyle="none", zorder=5)


def _compute_limits(curves: Sequence[LossCurve]) -> tuple[float, float]:
    """Compute the limits of the y axis.

    Points in the first tenth of the steps may exceed the limits, because these losses fall similarly for all schemes.
    """
    late = [p for curve in curves for p in curve.points[len(curve.points) // 10 :]]
    values = [p.mean for p in late] + [p.mean for curve in curves for p in curve.evaluations]
    low, high = min(values), max(values)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _choose_clock(curves: Sequence[LossCurve]) -> tuple[float, str]:
    longest = max((curve.points[-1].x for curve in curves if curve.points), default=0.0)
    return next((unit for unit in _CLOCK if longest >= 3 * unit[0]), _CLOCK[-1])


def _write_caption(curves: Sequence[LossCurve], width: int, along: Along) -> str:
    sentences = [
        "Training loss of each scheme (thin line) and of the baseline (thick line), with bands over the repeats."
    ]
    if width > 1:
        sentences.append(f"Each point is the mean of {width} steps; nothing else is smoothed.")
    else:
        sentences.append("Every step is shown; nothing is smoothed.")
    if along == "seconds":
        sentences.append("The time is that of the steps, without evaluations and checkpoints.")
    if any(curve.evaluations for curve in curves):
        sentences.append("Marks: loss on validation data (circle: the scheme, diamond: the baseline).")
    if any(curve.broken for curve in curves):
        sentences.append("A cross ends a curve whose loss became NaN or infinite.")
    sentences.append("The first steps may lie above the frame.")
    return " ".join(sentences)
