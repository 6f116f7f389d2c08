"""Figures of each scheme's speed: relative to the baseline, and per rank as a function of job size."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, INK, SMALL, grid
from hpcbench.present.document import Figure
from hpcbench.present.notation import significant
from hpcbench.report.compare import Cell, SchemeRow, choose_common_rate
from hpcbench.report.measures import Measures, is_gpu
from hpcbench.report.pace import UNITS
from hpcbench.report.plots.drawing import (
    Point,
    describe_band,
    draw_mark,
    label_right,
    list_ends,
    list_schemes,
    make_panels,
    name,
    spread,
)
from hpcbench.report.quantities.speed import MODEL_FLOPS, SAMPLES
from hpcbench.report.tables.scaling import STRONG, WEAK, ScalingPoint, list_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_WIDE = 8.0
"""The axis is logarithmic if the ratio of its limits exceeds this number."""


def plot_throughput(submission: Submission, cells: list[Cell]) -> Figure | None:
    """Plot one line per scheme, or return None if no scheme is compared with a baseline."""
    compared = [cell for cell in cells if any(row.speed for row in cell.rows)]
    if not compared:
        return None

    def draw(fig: Any) -> None:
        axes = list_schemes(fig, [(cell, cell.rows) for cell in compared], room=0.45)
        ends = [end for cell in compared for row in cell.rows for end in list_ends(row.speed)]
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
                _draw_speeds(axis, y, row, is_baseline=row.scheme == cell.baseline)
            rate = choose_common_rate(cell.rows)
            speeds = [significant(row.average_rate(rate)) + "*" * row.partial for row in cell.rows]
            label_right(axis, speeds, UNITS[rate])
        axes[-1].set_xlabel("speed / speed of the baseline")

    caption = (
        "Speed of each scheme divided by the baseline's: mean of the pairs with its 95 % interval. Filled "
        "mark: significantly faster or not faster. Open mark: inconclusive, or a single pair without an interval."
    )
    if any(row.partial for cell in compared for row in cell.rows):
        caption += " *: runs that did not complete. They are not compared."
    return Figure("throughput", "Speed relative to the baseline", caption, draw)


def _draw_speeds(axes: "Axes", y: int, row: SchemeRow, *, is_baseline: bool) -> None:
    if is_baseline:
        axes.plot(1, y, marker="s", color=INK, markersize=5)
        return
    speed = row.speed
    if speed is None:
        _write_text(axes, "not compared" if row.diverged or not row.completed else "no pair with the baseline", 1.0, y)
        return
    if speed.low is None or speed.high is None:
        _write_text(axes, "1 pair", speed.estimate, y)
    else:
        axes.plot([speed.low, speed.high], [y, y], color=COLOURS[0], linewidth=1.6, solid_capstyle="butt")
    draw_mark(axes, speed.estimate, y, finding=speed.shown)


def _write_text(axes: "Axes", text: str, x: float, y: int) -> None:
    """Write text next to a position, on the side with more space."""
    left = x > sum(axes.get_xlim()) / 2
    axes.annotate(
        text,
        (x, y),
        (-7 if left else 7, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=SMALL,
        color=INK,
    )


def plot_scaling(submission: Submission, cells: list[Cell]) -> Figure | None:
    """Plot one panel per scheme, with baseline and ideal scaling, or return None for fewer than two job sizes."""
    flops = all(run.model_flops_per_rank is not None for cell in cells for run in cell.runs if run.samples_per_s)
    base = next((cell.baseline for cell in cells if cell.baseline is not None), None)
    panels: list[tuple[str, str, dict[str, list[Point]]]] = []
    for kind in (STRONG, WEAK):
        series: dict[str, dict[str, list[Point]]] = {}
        for point in list_points(cells, kind):
            if drawn := _average_point(point, flops=flops):
                series.setdefault(point.series, {}).setdefault(point.row.scheme, []).append(drawn)
        for subtitle, curves in series.items():
            schemes = [scheme for scheme in curves if scheme != base] or list(curves)
            panels += [(f"{name(scheme)}\n{kind.name}, {subtitle}", scheme, curves) for scheme in schemes]
    if not panels:
        return None
    highest = max(point.mean for _, _, curves in panels for points in curves.values() for point in points)
    gpu = any(is_gpu(run.run) for cell in cells for run in cell.runs)
    unit = MODEL_FLOPS.choose_unit([highest], gpu=gpu)
    scale, axis_label = (unit.scale, unit.name) if flops else (1.0, f"{SAMPLES.label} / {'GPU' if gpu else 'rank'}")
    runs = max(row.completed for cell in cells for row in cell.rows)

    def draw(fig: Any) -> None:
        axes = make_panels(fig, [title for title, _, _ in panels], height=1.15)
        sizes = sorted({point.x for _, _, curves in panels for points in curves.values() for point in points})
        axes[0].set_xscale("log", base=2)
        axes[0].set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes[0].set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
        for axis, (_, scheme, curves) in zip(axes, panels, strict=True):
            ideal = curves.get(base or "", curves[scheme])[0].mean / scale
            axis.axhline(ideal, color=INK, linestyle="--", linewidth=0.9, label="ideal")
            if base in curves and scheme != base:
                _draw_sizes(axis, curves[base], scale, is_baseline=True)
            _draw_sizes(axis, curves[scheme], scale, is_baseline=False)
            grid(axis)
        axes[0].set_ylim(0, 1.12 * highest / scale)
        fig.supxlabel("GPUs" if gpu else "ranks", fontsize="medium")
        fig.supylabel(axis_label, fontsize="medium")
        handles, labels = axes[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=3, title=describe_band(runs), title_fontsize=7)

    caption = (
        f"{axis_label} of each scheme for each number of {'GPUs' if gpu else 'ranks'}: means over the runs. Bars: "
        "95 % interval of the mean; the range for two runs; absent for a single run. Dashed (ideal): each rank "
        "is as fast as a rank of the baseline at the smallest size."
    )
    return Figure("scaling", "Speed of a rank against the size of the job", caption, draw)


def _average_point(point: ScalingPoint, *, flops: bool) -> Point | None:
    ranks = point.size.ranks
    values = [value for run in point.row.runs if (value := _read_value(run, ranks, flops=flops)) is not None]
    return Point(ranks, *spread(values)) if values else None


def _read_value(run: Measures, ranks: int, *, flops: bool) -> float | None:
    if run.run.state != "completed" or run.samples_per_s is None:
        return None
    return run.model_flops_per_rank if flops else run.samples_per_s / ranks


def _draw_sizes(axes: "Axes", points: Sequence[Point], scale: float, *, is_baseline: bool) -> None:
    means = [point.mean / scale for point in points]
    axes.errorbar(
        [point.x for point in points],
        means,
        [[(p.mean - p.low) / scale for p in points], [(p.high - p.mean) / scale for p in points]],
        color=INK if is_baseline else COLOURS[1],
        marker="s" if is_baseline else "o",
        linewidth=2.2 if is_baseline else 1.2,
        elinewidth=1.0,
        capsize=2,
        label="baseline" if is_baseline else "scheme of the panel",
    )
