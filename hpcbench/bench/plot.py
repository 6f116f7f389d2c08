"""Plot of error against bits per value. Each codec is a point, colored by encode speed.

The plot requires matplotlib (extra ``report``).
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcbench.bench.codecs import CodecRow, Result
from hpcbench.plot_labels import place_labels
from hpcbench.plot_style import INK, grid, power
from hpcbench.present.document import Figure
from hpcbench.present.notation import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def figure(result: Result, title: str) -> Figure:
    """Draw a figure of the measurements."""
    caption = "Relative RMS error as a function of the bits per value on the wire. Color and brackets show encode GB/s."
    return Figure("codecs", "Error over size", caption, lambda canvas: _paint(canvas, result.rows, title))


def _paint(figure: "Canvas", rows: Sequence[CodecRow], title: str) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator

    shown = [row for row in rows if math.isfinite(row.relative_rmse) and math.isfinite(row.bits_per_value)]
    left_out = [row.codec for row in rows if row not in shown]
    figure.set_size_inches(6.4, 4.2)
    figure.suptitle(title)
    axes = figure.add_subplot()
    axes.set_xlabel(
        "bits per value on the wire" + (f"\n(infinite error, left out: {', '.join(left_out)})" if left_out else "")
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
            cmap="cividis",  # readable for color-blind people and in gray print
            norm=norm,
            marker=marker,
            s=40,
            edgecolors=INK,
            linewidths=0.8,
            zorder=3,
        )
    axes.set_xlim(0, max((row.bits_per_value for row in shown), default=1) * 1.25)
    axes.set_ylim(floor / 4, max(heights, default=1.0) * 6)
    ticks = [10.0**k for k in range(math.ceil(math.log10(floor)) + 1, 2)]
    axes.set_yticks([floor, *ticks], ["exact", *(power(round(math.log10(tick))) for tick in ticks)])
    axes.axhline(floor * 10**0.5, color=INK, alpha=0.5, linewidth=0.8, linestyle=":")
    grid(axes)
    bar = figure.colorbar(points, label="encode GB/s (in brackets)", format="%g", ticks=LogLocator(10, (1, 2, 5)))
    bar.minorticks_off()
    names = [
        (f"{row.codec} ({short(speed)})", row.bits_per_value, height)
        for row, speed, height in zip(shown, speeds, heights, strict=False)
    ]
    place_labels(figure, [(axes, names)])


def _floor(rows: list[CodecRow]) -> float:
    """Return the y-coordinate of codecs without error, at least a decade below the smallest error."""
    least = min((row.relative_rmse for row in rows if row.relative_rmse), default=1e-6)
    return 10.0 ** (math.floor(math.log10(least)) - 1)
