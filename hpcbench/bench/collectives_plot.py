"""Plot of time, and of speedup over the MPI library, against vector size, with one column per operation.

Requires matplotlib.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcbench.bench.options import format_size
from hpcbench.bench.schemes import CollectiveRow
from hpcbench.plot_style import COLOURS, DASHES, INK, MARKS, grid
from hpcbench.present.document import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


def figure(rows: Sequence[CollectiveRow], title: str) -> Figure:
    """Draw a figure of the measured rows (at least one)."""
    caption = "Top: time of each scheme as a function of the vector size. Bottom: speed relative to the MPI library."
    return Figure("collectives", "Time and speed over size", caption, lambda canvas: _paint(canvas, rows, title))


def _paint(figure: "Canvas", rows: Sequence[CollectiveRow], title: str) -> None:
    figure.suptitle(title)
    operations = list(dict.fromkeys(row.operation for row in rows))
    schemes = [name for name in dict.fromkeys(row.scheme for row in rows) if name != "native"]
    figure.set_size_inches(max(4.8, 3.2 * len(operations)), 5)
    panels = figure.subplots(2, len(operations), sharex=True, squeeze=False)
    for column, operation in enumerate(operations):
        above, below = panels[0][column], panels[1][column]
        for scheme in ("native", *schemes):
            points = [row for row in rows if (row.operation, row.scheme) == (operation, scheme)]
            style = _style(schemes.index(scheme)) if scheme in schemes else {"color": INK, "linewidth": 2}
            sizes = [row.bytes for row in points]
            above.plot(sizes, [row.seconds * 1e6 for row in points], label=scheme, **style)
            if scheme != "native":
                below.plot(sizes, [row.speedup for row in points], **style)
        below.axhline(1, color=INK, linewidth=2)
        _dress(above, below, operation, [row.bytes for row in rows])
    panels[0][0].set_ylabel("us, median of the slowest rank")
    panels[1][0].set_ylabel("times as fast as native")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def _style(k: int) -> dict[str, object]:
    return {
        "color": COLOURS[k % len(COLOURS)],
        "marker": MARKS[k % len(MARKS)],
        "linestyle": DASHES[k % len(DASHES)],
    }


def _dress(above: "Axes", below: "Axes", operation: str, sizes: Sequence[int]) -> None:
    from matplotlib.ticker import LogLocator

    above.set_title(operation)
    below.set_xlabel("bytes of the vector")
    for axes in (above, below):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
        grid(axes)
    above.yaxis.set_major_formatter("{x:,.0f}")
    below.yaxis.set_major_formatter("{x:g}x")
    ticks = sorted(set(sizes))
    ticks = ticks[:: max(1, len(ticks) // 5)]
    below.set_xticks(ticks, [format_size(size) for size in ticks])
