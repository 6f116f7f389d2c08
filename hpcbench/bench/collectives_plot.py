"""Time over size, and below it the gain over the MPI library, a column an operation. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path

from hpcbench.bench.options import spelled
from hpcbench.bench.schemes import Row
from hpcbench.errors import UserError

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator
except ImportError:
    raise UserError("--plot: needs matplotlib: pip install 'hpcbench[report]'") from None

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, told apart by colour-blind eyes; dashes and marks tell them apart in grey print."""
_MARKS, _DASHES = "osD^vP", ("-", "--", "-.", ":")


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write the plot.

    Parameters
    ----------
    rows
        What was measured, at least one.
    title
        What stands above it.
    path
        A ``.png`` or ``.svg`` file.

    Raises
    ------
    UserError
        The file cannot be written.
    """
    operations = list(dict.fromkeys(row.operation for row in rows))
    schemes = [name for name in dict.fromkeys(row.scheme for row in rows) if name != "native"]
    figure = Figure(figsize=(max(6.0, 4.2 * len(operations)), 6.4), layout="constrained")
    figure.suptitle(title, fontsize=9)
    grid = figure.subplots(2, len(operations), sharex=True, squeeze=False)
    for column, operation in enumerate(operations):
        above, below = grid[0][column], grid[1][column]
        for scheme in ("native", *schemes):
            own = [row for row in rows if (row.operation, row.scheme) == (operation, scheme)]
            style = _style(schemes.index(scheme)) if scheme in schemes else {"color": "black", "linewidth": 2}
            sizes = [row.bytes for row in own]
            above.plot(sizes, [row.seconds * 1e6 for row in own], label=scheme, **style)
            if scheme != "native":
                below.plot(sizes, [row.speedup for row in own], **style)
        below.axhline(1, color="black", linewidth=2)
        _dress(above, below, operation, [row.bytes for row in rows])
    grid[0][0].set_ylabel("us, median of the slowest rank")
    grid[1][0].set_ylabel("times as fast as native")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    try:
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "hpcbench"}):
            figure.savefig(path, dpi=160)
    except OSError as error:
        raise UserError(f"--plot {path}: cannot be written: {error.strerror}") from None


def _style(k: int) -> dict[str, object]:
    return {
        "color": _COLOURS[k % len(_COLOURS)],
        "marker": _MARKS[k % len(_MARKS)],
        "linestyle": _DASHES[k % len(_DASHES)],
        "markersize": 4,
    }


def _dress(above: Axes, below: Axes, operation: str, sizes: Sequence[int]) -> None:
    above.set_title(operation, fontsize=10)
    below.set_xlabel("bytes of the vector")
    for axes in (above, below):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
        axes.grid(color="0.9")
        axes.minorticks_off()
    above.yaxis.set_major_formatter("{x:,.0f}")
    below.yaxis.set_major_formatter("{x:g}x")
    ticks = sorted(set(sizes))
    ticks = ticks[:: max(1, len(ticks) // 5)]
    below.set_xticks(ticks, [spelled(size) for size in ticks])
