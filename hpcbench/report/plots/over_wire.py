"""Savings on the wire and their cost: the error of messages, and the loss."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_labels import fitted, place_labels
from hpcbench.plot_style import COLOURS, INK, WIDTH, grid, power
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell, Row
from hpcbench.report.plots.drawing import grid_of, mark, name
from hpcbench.report.quantities.traffic import ERROR, WIRE
from hpcbench.report.statistics import usable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Sent:
    """A codec on a channel of one scheme: mean of the scheme's runs."""

    channel: str
    codec: str
    scheme: str
    wire_over_message: float
    error: float
    """Relative error of the sampled values in the 2-norm."""


def sent(cell: Cell) -> list[Sent]:
    """Channels whose size and error are known. An error of 0 has no place on a logarithmic axis."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in cell.rows:
        for channel in (channel for run in row.counted for channel in run.channels):
            if channel.coded_part == 0:
                continue  # what its codec would have done is none of this run's errors
            wire, error = channel.wire_over_message, channel.sampled_error
            if isinstance(wire, float) and error is not None and wire > 0 and error > 0 and usable(error):
                words = f"{channel.dimension} {(channel.phase or '').lower()}".strip()
                found.setdefault((words, channel.codec or "", row.scheme), []).append((wire, error))
    return [
        Sent(*key, fmean(wire for wire, _ in values), fmean(error for _, error in values))
        for key, values in sorted(found.items())
    ]


def error_over_wire(submission: Submission, cell: Cell) -> Figure | None:
    """A panel for each channel, with a mark for each scheme and its codec's name; None if no error was sampled."""
    everything = sent(cell)
    if not everything:
        return None
    channels = list(dict.fromkeys(point.channel for point in everything))

    def draw(fig: Any) -> None:
        axes = grid_of(fig, channels, height=1.3)
        low, high = min(point.error for point in everything), max(point.error for point in everything)
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        step = 1 + len(exponents) // 7
        axes[0].set_yscale("log")
        axes[0].set_yticks([10.0**k for k in exponents[::step]], [power(k) for k in exponents[::step]])
        axes[0].set_ylim(low / 4, high * 4)
        axes[0].set_xlim(0, 1.15 * max(1.0, *(point.wire_over_message for point in everything)))
        for axis, channel in zip(axes, channels, strict=True):
            own = [point for point in everything if point.channel == channel]
            x, y = [point.wire_over_message for point in own], [point.error for point in own]
            axis.plot(x, y, "o", color=COLOURS[0], markerfacecolor="none", markeredgewidth=1.1)
            grid(axis)
        fig.supxlabel(WIRE.label, fontsize="medium")
        fig.supylabel(ERROR.label, fontsize="medium")
        own_names = [_names([point for point in everything if point.channel == channel]) for channel in channels]
        place_labels(fig, list(zip(axes, own_names, strict=True)))

    caption = (
        "Relative error (2-norm) of the sampled values of each channel against its wire bytes per message byte: a mark"
        " a scheme, mean of its runs, with the name of its codec. Channels without error, or of which none was sampled,"
        " or whose codec never ran, are not shown."
    )
    return Figure("error-over-wire", "Error against wire bytes", caption, draw)


def _names(points: Sequence[Sent]) -> list[tuple[str, float, float]]:
    """Write each codec's name once, in the middle of its marks."""
    codecs = dict.fromkeys(point.codec for point in points)
    groups = [(codec, [point for point in points if point.codec == codec]) for codec in codecs]
    return [
        (codec, fmean(p.wire_over_message for p in own), math.exp(fmean(math.log(p.error) for p in own)))
        for codec, own in groups
    ]


_WIDE = 8.0
"""Number of margins beyond which the axis is logarithmic, because the margin could not be seen on a linear one."""
_NAMES = 72.0
"""Largest width of a name in points."""


def loss_over_wire(submission: Submission, cell: Cell) -> Figure | None:
    """A mark for each scheme; None if no scheme has both values."""
    rows = [row for row in cell.rows if _place(row)]
    if not rows:
        return None

    def draw(fig: Any) -> None:
        fig.set_size_inches(WIDTH, 2.4)
        axes = fig.subplots()
        _draw(axes, rows)
        axes.set_xlabel(WIRE.label)
        axes.set_ylabel("validation loss - loss of the baseline")
        names = [(fitted(name(row.scheme), _NAMES), *place) for row in rows if (place := _place(row))]
        place_labels(fig, [(axes, names)], lines=[0.0])

    caption = (
        "Difference of the last validation loss from the baseline's, mean of the pairs with its 95 % interval, against"
        " wire bytes per message byte. Grey: the margin within which a loss is as good. A filled mark: shown to be as"
        " good, or worse; an open mark: neither is shown, or there is one pair only, which has no interval. Where"
        f" differences beyond {_WIDE:g} margins occur, the axis is logarithmic outside of the margin."
    )
    left_out = [name(row.scheme) for row in cell.rows if row.scheme != cell.baseline and not _place(row)]
    if left_out:
        caption += f" Not shown, because they diverged or either is not known: {', '.join(left_out)}."
    return Figure("loss-over-wire", "Loss against wire bytes", caption, draw)


def _place(row: Row) -> tuple[float, float] | None:
    wire = row.wire_over_message
    if row.loss is None or row.diverged or not isinstance(wire, float) or not math.isfinite(row.loss.estimate):
        return None
    return wire, row.loss.estimate


def _draw(axes: "Axes", rows: list[Row]) -> None:
    axes.axhline(0, color=INK, linewidth=1.6, zorder=1)
    margin = next((row.loss_margin for row in rows if row.loss_margin is not None), 0.0)
    axes.axhspan(-margin, margin, color=INK, alpha=0.12, linewidth=0)
    for row in rows:
        place = _place(row)
        if place is None or row.loss is None:
            continue
        x, y = place
        if row.loss.low is not None and row.loss.high is not None:
            axes.plot([x, x], [row.loss.low, row.loss.high], color=COLOURS[0], linewidth=1.4, solid_capstyle="butt")
        mark(axes, x, y, shown=row.loss_shown != "not shown")
    ends = [(row.loss.estimate, row.loss.low, row.loss.high) for row in rows if row.loss]
    farthest = max((abs(end) for own in ends for end in own if end is not None), default=0.0)
    if margin and farthest > _WIDE * margin:
        _bend(axes, margin, farthest)
    axes.set_xlim(0, 1.1 * max(1.0, *(place[0] for row in rows if (place := _place(row)))))
    axes.margins(y=0.12)
    grid(axes)


def _bend(axes: "Axes", margin: float, farthest: float) -> None:
    """Make the axis linear up to the margin, and logarithmic beyond it."""
    axes.set_yscale("symlog", linthresh=margin, linscale=1)
    decades = [10.0**k for k in range(math.floor(math.log10(margin)), math.ceil(math.log10(farthest)) + 1)]
    beyond = [tick for tick in decades if tick >= 1.5 * margin]
    beyond = beyond[:: 1 + len(beyond) // 4]
    axes.set_yticks([-tick for tick in beyond] + [-margin, 0, margin] + beyond)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.2g}" if value else "0")
