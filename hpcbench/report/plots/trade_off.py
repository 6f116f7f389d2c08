"""Figure of speed and loss, shown next to the summary, with the baseline, the loss margin and the Pareto front."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_labels import Ends, place_labels
from hpcbench.plot_style import COLOURS, INK, WIDTH, grid
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.front import compute_front
from hpcbench.report.plots.drawing import fit_name, name
from hpcbench.report.verdicts import Group

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = 3.0
"""Height of the figure in inches."""
_WIDE = 8.0
"""Maximum loss difference for a linear axis, in multiples of the margin."""
_GOOD, _WORSE, _NOT_FASTER, _OPEN = "faster, loss no worse", "loss worse", "not faster", "inconclusive"
_MEANINGS: dict[Group, str] = {"good": _GOOD, "worse": _WORSE, "not faster": _NOT_FASTER, "as fast": _NOT_FASTER}
_LOOKS = {
    _GOOD: (COLOURS[2], "o", True),
    _WORSE: (COLOURS[1], "X", True),
    _NOT_FASTER: (COLOURS[0], "s", False),
    _OPEN: (COLOURS[1], "D", False),
}
"""Color and marker of each verdict, and whether the marker is filled."""


def plot_trade_off(submission: Submission, cell: Cell) -> Figure | None:
    """Plot one point per scheme, or return None if no scheme has both a comparable speed and a comparable loss."""
    rows = [row for row in cell.rows if row.scheme != cell.baseline and _has_place(row)]
    if not rows:
        return None
    margin = next((row.loss_margin for row in rows if row.loss_margin is not None), 0.0)
    is_folded = margin > 0 and _measure_reach(rows) > _WIDE * margin
    left_out = [name(row.scheme) for row in cell.rows if row.scheme != cell.baseline and row not in rows]

    def draw(fig: Any) -> None:
        fig.set_size_inches(WIDTH, _HEIGHT)
        axes = fig.subplots()
        axes.axhspan(-margin, margin, color=INK, alpha=0.12, linewidth=0, label="margin: loss no worse")
        axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
        axes.axvline(1, color=INK, linewidth=0.8, zorder=1)
        _draw_front(axes, cell, rows)
        for row in rows:
            _draw_scheme(axes, row)
        axes.plot(1, 0, marker="s", color=INK, markersize=5.5, linestyle="none", zorder=4, label="baseline")
        _set_loss_scale(axes, rows, margin, is_folded=is_folded)
        axes.margins(x=0.12)
        axes.set_xlabel("speed / speed of the baseline (right: faster)")
        axes.set_ylabel(
            "loss - loss of the baseline (up: worse)" + "\nlogarithmic beyond the margin" * is_folded, linespacing=1.1
        )
        grid(axes)
        handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        fig.legend(handles.values(), handles, loc="outside upper center", ncols=2)
        points = [(fit_name(row.scheme), *_get_place(row)) for row in sorted(rows, key=_get_place)]
        bars = [bar for row in rows for bar in _list_bars(row)]
        place_labels(
            fig, [(axes, [(fit_name(cell.baseline or ""), 1.0, 0.0), *points])], [*bars, (axes.get_xlim(), (0.0, 0.0))]
        )

    caption = (
        "Speed and validation loss of each scheme relative to the baseline, with the 95 % intervals over the pairs. "
        f"The margin of the loss is {margin:.2g}. The Pareto front connects schemes that no other scheme "
        "significantly beats."
    )
    if left_out:
        caption += f" Left out, because they diverged or a value is not known: {', '.join(left_out)}."
    return Figure("trade-off", "Speed against loss", caption, draw)


def _has_place(row: SchemeRow) -> bool:
    if row.speed is None or row.loss is None or row.diverged:
        return False
    return math.isfinite(row.speed.estimate) and math.isfinite(row.loss.estimate)


def _get_place(row: SchemeRow) -> tuple[float, float]:
    return (row.speed.estimate, row.loss.estimate) if row.speed and row.loss else (math.nan, math.nan)


def _draw_front(axes: "Axes", cell: Cell, rows: Iterable[SchemeRow]) -> None:
    """Connect the schemes on the Pareto front, in the order of their speeds.

    If the scatter is large, a scheme may be slower and worse than others in the figure although none of them is
    significantly better. Such schemes are not connected, so that speed and loss both increase along the line.
    """
    unbeaten = compute_front(cell).unbeaten
    places = [_get_place(row) for row in rows if row.scheme in unbeaten]
    places += [(1.0, 0.0)] if cell.baseline in unbeaten else []
    xs, ys = zip(*find_optimal(places), strict=True) if places else ((), ())
    label = "Pareto front" if len(xs) > 1 else None
    axes.plot(xs, ys, color=INK, linestyle="--", linewidth=0.8, alpha=0.7, zorder=1, label=label)


def find_optimal(places: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the pairs of speed and loss that no other pair improves upon, slowest first."""
    optimal: list[tuple[float, float]] = []
    for speed, loss in sorted(places, key=lambda place: (-place[0], place[1])):
        if not optimal or loss < optimal[-1][1]:
            optimal.append((speed, loss))
    return optimal[::-1]


def _draw_scheme(axes: "Axes", row: SchemeRow) -> None:
    x, y = _get_place(row)
    meaning = _MEANINGS.get(row.outcome.group, _OPEN) if row.outcome else _OPEN
    colour, mark, filled = _LOOKS[meaning]
    for xs, ys in _list_bars(row):
        axes.plot(xs, ys, color=colour, linewidth=1.2, solid_capstyle="butt")
    axes.plot(
        x,
        y,
        marker=mark,
        markersize=5.5,
        color=colour,
        markerfacecolor=colour if filled else "none",
        linestyle="none",
        zorder=3,
        label=meaning,
    )


def _list_bars(row: SchemeRow) -> list[tuple[Ends, Ends]]:
    """Return the ends of the intervals of a scheme."""
    x, y = _get_place(row)
    bars: list[tuple[Ends, Ends]] = []
    if row.speed and row.speed.low is not None and row.speed.high is not None:
        bars.append(((row.speed.low, row.speed.high), (y, y)))
    if row.loss and row.loss.low is not None and row.loss.high is not None:
        bars.append(((x, x), (row.loss.low, row.loss.high)))
    return bars


def _measure_reach(rows: Iterable[SchemeRow]) -> float:
    """Return the largest distance of any loss or interval bound from the baseline's loss."""
    return max((abs(end) for end in _list_ends(rows)), default=0.0)


def _list_ends(rows: Iterable[SchemeRow]) -> list[float]:
    ends = [end for row in rows if row.loss for end in (row.loss.estimate, row.loss.low, row.loss.high)]
    return [end for end in ends if end is not None and math.isfinite(end)]


def _set_loss_scale(axes: "Axes", rows: Sequence[SchemeRow], margin: float, *, is_folded: bool) -> None:
    """Set a linear axis, or an axis that is linear up to the margin and logarithmic beyond the margin."""
    from matplotlib.ticker import MaxNLocator

    ends, farthest = _list_ends(rows), _measure_reach(rows)
    axes.margins(y=0.08)
    if is_folded:
        axes.set_yscale("symlog", linthresh=margin, linscale=1)
        axes.minorticks_off()
        decades = [10.0**k for k in range(math.floor(math.log10(margin)), math.ceil(math.log10(farthest)) + 1)]
        beyond = [tick for tick in decades if 3 * margin <= tick <= farthest] or [decades[-1]]
        signs = [sign for sign in (-1, 1) if any(sign * end > 2 * margin for end in ends)]
        axes.set_yticks(sorted([0.0, *(sign * tick for sign in signs for tick in beyond)]))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.2g}" if value else "0")
