"""Speed of a rank against the number of ranks: what is left of it as a job grows, with and without compression."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, INK, grid
from hpcbench.report.compare import Cell
from hpcbench.report.document import Figure
from hpcbench.report.measures import Measures, is_gpu
from hpcbench.report.notation import flops_unit
from hpcbench.report.plots.curves import Point, band_words, spread
from hpcbench.report.plots.panels import grid_of, name
from hpcbench.report.scaling import STRONG, WEAK
from hpcbench.report.scaling import Point as SizePoint
from hpcbench.report.scaling import scaling as sizes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def scaling(submission: Submission, cells: list[Cell]) -> Figure | None:
    """A panel a scheme with the baseline and the ideal; None where fewer than two sizes were run."""
    flops = all(run.model_flops_per_rank is not None for cell in cells for run in cell.runs if run.samples_per_s)
    base = next((cell.baseline for cell in cells if cell.baseline is not None), None)
    panels: list[tuple[str, str, dict[str, list[Point]]]] = []
    for kind in (STRONG, WEAK):
        series: dict[str, dict[str, list[Point]]] = {}
        for point in sizes_of(cells, kind):
            if found := _point(point, flops=flops):
                series.setdefault(point.series, {}).setdefault(point.row.scheme, []).append(found)
        for said, curves in series.items():
            schemes = [scheme for scheme in curves if scheme != base] or list(curves)
            panels += [(f"{name(scheme)}\n{kind.name}, {said}", scheme, curves) for scheme in schemes]
    if not panels:
        return None
    highest = max(point.mean for _, _, curves in panels for points in curves.values() for point in points)
    gpu = any(is_gpu(run.run) for cell in cells for run in cell.runs)
    unit = flops_unit([highest], gpu)
    scale, words = (unit.scale, unit.name) if flops else (1.0, f"samples/s / {'GPU' if gpu else 'rank'}")
    runs = max(row.completed for cell in cells for row in cell.rows)

    def draw(fig: Any) -> None:
        axes = grid_of(fig, [title for title, _, _ in panels], height=1.15)
        sizes = sorted({point.x for _, _, curves in panels for points in curves.values() for point in points})
        axes[0].set_xscale("log", base=2)
        axes[0].set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes[0].set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
        for axis, (_, scheme, curves) in zip(axes, panels, strict=True):
            ideal = curves.get(base or "", curves[scheme])[0].mean / scale
            axis.axhline(ideal, color=INK, linestyle="--", linewidth=0.9, label="ideal")
            if base in curves and scheme != base:
                _draw(axis, curves[base], scale, is_baseline=True)
            _draw(axis, curves[scheme], scale, is_baseline=False)
            grid(axis)
        axes[0].set_ylim(0, 1.12 * highest / scale)
        fig.supxlabel("GPUs" if gpu else "ranks", fontsize="medium")
        fig.supylabel(words, fontsize="medium")
        handles, labels = axes[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=3, title=band_words(runs), title_fontsize=7)

    caption = (
        f"{words} of each scheme over the number of {'GPUs' if gpu else 'ranks'}, means over the runs; bars:"
        " 95 % interval of the mean, both values of two runs, none of one. Dashed: the baseline's speed at the smallest"
        " size, kept by every rank."
    )
    return Figure("scaling", "Speed of a rank against the size of the job", caption, draw)


def _point(point: SizePoint, *, flops: bool) -> Point | None:
    ranks = point.size.ranks
    values = [value for run in point.row.runs if (value := _value(run, ranks, flops=flops)) is not None]
    return Point(ranks, *spread(values)) if values else None


def _value(run: Measures, ranks: int, *, flops: bool) -> float | None:
    if run.run.state != "completed" or run.samples_per_s is None:
        return None
    return run.model_flops_per_rank if flops else run.samples_per_s / ranks


def _draw(axes: "Axes", points: Sequence[Point], scale: float, *, is_baseline: bool) -> None:
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
