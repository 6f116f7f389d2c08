"""Figure of predicted speeds as a function of node bandwidth, with measured speeds at the machine's bandwidth."""

from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, DASHES, INK, MARKS, WIDTH, grid
from hpcbench.predict.prediction_file import format_cell
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.plots.drawing import name
from hpcbench.report.predictions import read_network_times

_FACTORS = tuple(10 ** (k / 10 - 1.5) for k in range(31))
"""Multiples of the machine's bandwidth, from 0.03 to 30."""


def plot_gain_over_bandwidth(submission: Submission, cell: Cell) -> Figure | None:
    """Plot a curve for each scheme, or return None if the bandwidth is assumed, or if no message uses the network."""
    bandwidth, times = read_network_times(submission.root) if submission.root else (None, {})
    of_cell = {row.scheme: times.get((format_cell(cell.values), row.scheme)) for row in cell.rows}
    base = of_cell.get(cell.baseline or "")
    drawn = [(row, time) for row in cell.rows if row.scheme != cell.baseline and (time := of_cell[row.scheme])]
    if bandwidth is None or base is None or not any(base.network or time.network for _, time in drawn):
        return None
    here = 8e-9 * bandwidth

    def draw(fig: Any) -> None:
        fig.set_size_inches(WIDTH, 2.7)
        axes = fig.subplots()
        axes.set_xscale("log")
        axes.axhline(1, color=INK, linewidth=0.8, zorder=1)
        axes.axvline(here, color=INK, linewidth=0.8, linestyle=":", zorder=1)
        for k, (row, time) in enumerate(drawn):
            ratios = [base.compute_seconds(factor) / time.compute_seconds(factor) for factor in _FACTORS]
            _draw_scheme(axes, k, row, [here * factor for factor in _FACTORS], ratios, here)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_xlabel("bandwidth of a node's network / (Gbit/s)")
        axes.set_ylabel("speed / speed of the baseline")
        grid(axes)
        fig.legend(loc="outside upper center", ncols=3)

    caption = (
        "Predicted speed of each scheme relative to the baseline if the network of a node were slower or faster, with"
        f" everything else unchanged. Dotted: this machine, {here:.3g} Gbit/s. Marks: measured there, with the 95 %"
        " intervals over the pairs."
    )
    return Figure("gain-over-bandwidth", "Predicted speed by network bandwidth", caption, draw)


def _draw_scheme(axes: Any, number: int, row: SchemeRow, x: list[float], ratios: list[float], here: float) -> None:
    colour, dashes = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    axes.plot(x, ratios, color=colour, linestyle=dashes, linewidth=1.2, label=name(row.scheme))
    if row.speed is None:
        return
    if row.speed.low is not None and row.speed.high is not None:
        axes.plot([here, here], [row.speed.low, row.speed.high], color=colour, linewidth=1.0)
    axes.plot(here, row.speed.estimate, marker=MARKS[number % len(MARKS)], markersize=4.5, color=colour)
