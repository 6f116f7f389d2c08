"""Speed of a rank against the number of ranks: what is left of it as a job grows, with and without compression."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcbench.collect.lines import integer, printable
from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, INK, grid
from hpcbench.report.compare import Cell
from hpcbench.report.document import Figure
from hpcbench.report.measures import Measures, is_gpu
from hpcbench.report.plots.curves import Point, band_words, spread
from hpcbench.report.plots.panels import grid_of, name
from hpcbench.report.table import flops_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Series:
    """Cells that differ in nothing but their size."""

    words: str
    """What they have in common, and how they grow."""
    cells: tuple[tuple[int, Cell], ...]
    """Ranks and cell, from the smallest to the largest."""


def series(cells: Sequence[Cell]) -> list[Series]:
    """Put cells together that differ only in ranks, and in what is settled by them.

    A value of the matrix that is the same in all cells of as many ranks (nodes, a global batch that grows along) is
    part of the size; the others tell series apart. Series of one size are left out.
    """
    sized = [(ranks, cell) for cell in cells if (ranks := _setting(cell, "ranks")) is not None]
    keys = dict.fromkeys(key for _, cell in sized for key in cell.values)
    free = [key for key in keys if not _settled(key, sized)]
    groups: dict[str, list[tuple[int, Cell]]] = {}
    for ranks, cell in sized:
        groups.setdefault(", ".join(f"{key} {cell.values.get(key)}" for key in free), []).append((ranks, cell))
    found = []
    for words, group in groups.items():
        group.sort(key=lambda pair: pair[0])
        if len({ranks for ranks, _ in group}) > 1:
            found.append(Series(printable(", ".join(filter(None, (words, _growth(group))))), tuple(group)))
    return found


def scaling(submission: Submission, cells: list[Cell]) -> Figure | None:
    """A panel a scheme with the baseline and the ideal; None where fewer than two sizes were run."""
    panels: list[tuple[str, dict[str, list[Point]], str | None]] = []
    flops = all(run.model_flops_per_rank is not None for cell in cells for run in cell.runs if run.samples_per_s)
    for one in series(cells):
        base = next((cell.baseline for _, cell in one.cells if cell.baseline is not None), None)
        curves = {
            scheme: points
            for scheme in dict.fromkeys(row.scheme for _, cell in one.cells for row in cell.rows)
            if (points := _points(one, scheme, flops=flops))
        }
        names = [scheme for scheme in curves if scheme != base] or list(curves)
        panels += [
            (f"{name(scheme)}\n{one.words}", {scheme: curves[scheme]} | _only(curves, base), base) for scheme in names
        ]
    if not panels:
        return None
    highest = max(point.mean for _, curves, _ in panels for points in curves.values() for point in points)
    gpu = any(is_gpu(run.run) for cell in cells for run in cell.runs)
    unit = flops_unit([highest], gpu)
    scale, words = (unit.scale, unit.name) if flops else (1.0, f"samples/s / {'GPU' if gpu else 'rank'}")
    runs = max(len(row.runs) for cell in cells for row in cell.rows)

    def draw(fig: Any) -> None:
        axes = grid_of(fig, [title for title, _, _ in panels], height=1.15)
        sizes = sorted({point.x for _, curves, _ in panels for points in curves.values() for point in points})
        axes[0].set_xscale("log", base=2)
        axes[0].set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes[0].set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
        for axis, (_, curves, base) in zip(axes, panels, strict=True):
            ideal = next(iter(curves[base] if base in curves else next(iter(curves.values()))))
            axis.axhline(ideal.mean / scale, color=INK, linestyle="--", linewidth=0.9, label="ideal")
            for scheme, points in reversed(curves.items()):
                _draw(axis, points, scale, is_baseline=scheme == base)
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


def _only(curves: dict[str, list[Point]], base: str | None) -> dict[str, list[Point]]:
    return {base: curves[base]} if base is not None and base in curves else {}


def _points(one: Series, scheme: str, *, flops: bool) -> list[Point]:
    found = []
    for ranks, cell in one.cells:
        row = cell.row(scheme)
        values = [value for run in (row.runs if row else ()) if (value := _value(run, ranks, flops=flops)) is not None]
        if values:
            found.append(Point(ranks, *spread(values)))
    return found


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


def _setting(cell: Cell, *keys: str) -> int | None:
    return next((value for run in cell.runs if (value := integer(run.run.settings, *keys)) is not None), None)


def _settled(key: str, sized: Sequence[tuple[int, Cell]]) -> bool:
    values: dict[int, set[str]] = {}
    for ranks, cell in sized:
        values.setdefault(ranks, set()).add(repr(cell.values.get(key)))
    return all(len(own) == 1 for own in values.values())


def _growth(group: Sequence[tuple[int, Cell]]) -> str:
    batches = [(ranks, _setting(cell, "train", "global_batch")) for ranks, cell in group]
    known = [(ranks, batch) for ranks, batch in batches if batch]
    if len(known) < len(batches):
        return ""
    if len({batch for _, batch in known}) == 1:
        return "strong scaling"
    return "weak scaling" if len({batch / ranks for ranks, batch in known}) == 1 else ""
