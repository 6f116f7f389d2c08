"""Error against bits a value, a point a codec, coloured by its encode speed. Needs matplotlib (extra ``report``)."""

import math
from pathlib import Path

from hpcbench.bench.codecs import Result, Row
from hpcbench.bench.table import significant
from hpcbench.errors import UserError

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator
    from matplotlib.transforms import Bbox
except ImportError:
    raise UserError("--plot: needs matplotlib: pip install 'hpcbench[report]'") from None

_PLACES = [(7, 0, "left"), (-7, 0, "right"), (7, 9, "left"), (7, -9, "left"), (-7, 9, "right"), (-7, -9, "right")]
_PLACES += [(0, dy, "center") for dy in (12, -12, 22, -22, 32, -32, 42, -42)]
"""Where a label may stand beside its point, in points; the first that is free is taken."""


def draw(result: Result, title: str, path: Path) -> None:
    """Write the plot.

    Parameters
    ----------
    result
        What was measured.
    title
        What stands above it.
    path
        A ``.png`` or ``.svg`` file.

    Raises
    ------
    UserError
        The file cannot be written.
    """
    shown = [row for row in result.rows if math.isfinite(row.relative_rmse) and math.isfinite(row.bits_per_value)]
    left_out = [row.codec for row in result.rows if row not in shown]
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    figure.suptitle(title, fontsize=9)
    axes.set_xlabel(
        "bits a value on the wire" + (f"\n(infinite error, not shown: {', '.join(left_out)})" if left_out else "")
    )
    axes.set_ylabel("relative RMSE")
    axes.set_yscale("log")
    floor = _floor(shown)
    heights = [row.relative_rmse or floor for row in shown]
    speeds = [row.speeds["encode"].best for row in shown] or [1.0]
    norm = LogNorm(min(speeds) / 1.01, max(speeds) * 1.01)
    for lossless, marker in ((False, "o"), (True, "s")):
        chosen = [k for k, row in enumerate(shown) if (row.relative_rmse == 0) == lossless]
        points = axes.scatter(
            [shown[k].bits_per_value for k in chosen],
            [heights[k] for k in chosen],
            c=[speeds[k] for k in chosen],
            cmap="cividis",  # the same to colour-blind eyes, and dark to light in grey print
            norm=norm,
            marker=marker,
            s=55,
            edgecolors="black",
            linewidths=0.8,
            zorder=3,
        )
    axes.set_xlim(0, max((row.bits_per_value for row in shown), default=1) * 1.25)
    axes.set_ylim(floor / 4, max(heights, default=1.0) * 6)
    ticks = [10.0**k for k in range(math.ceil(math.log10(floor)) + 1, 2)]
    axes.set_yticks([floor, *ticks], ["exact", *(f"$10^{{{round(math.log10(tick))}}}$" for tick in ticks)])
    axes.minorticks_off()
    axes.axhline(floor * 10**0.5, color="0.6", linewidth=0.8, linestyle=":")
    axes.grid(color="0.9", zorder=0)
    bar = figure.colorbar(points, label="encode GB/s (in brackets)", format="%g", ticks=LogLocator(10, (1, 2, 5)))
    bar.minorticks_off()
    names = [
        (f"{row.codec} ({significant(speed)})", row.bits_per_value, height)
        for row, speed, height in zip(shown, speeds, heights, strict=False)
    ]
    canvas.draw()  # type: ignore[no-untyped-call]
    _label(axes, canvas, names)
    try:
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "hpcbench"}):
            figure.savefig(path, dpi=160)
    except OSError as error:
        raise UserError(f"--plot {path}: cannot be written: {error.strerror}") from None


def _floor(rows: list[Row]) -> float:
    """Where codecs without error stand: a decade and more below the least error."""
    least = min((row.relative_rmse for row in rows if row.relative_rmse), default=1e-6)
    return 10.0 ** (math.floor(math.log10(least)) - 1)


def _label(axes: Axes, canvas: FigureCanvasAgg, points: list[tuple[str, float, float]]) -> None:
    """Write each point's name where it covers neither another name nor a point."""
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    taken: list[Bbox] = []
    for _, x, y in points:
        across, up = axes.transData.transform((x, y))
        taken.append(Bbox.from_extents(across - 5, up - 5, across + 5, up + 5))
    for name, x, y in points:
        for place, (dx, dy, side) in enumerate(_PLACES):
            text = axes.annotate(
                name, (x, y), (dx, dy), textcoords="offset points", ha=side, va="center", fontsize=8, zorder=4
            )
            box = text.get_window_extent(renderer)
            free = not box.count_overlaps(taken) and axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1)
            if free or place == len(_PLACES) - 1:
                taken.append(box)
                break
            text.remove()
