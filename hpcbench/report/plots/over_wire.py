"""Figures of the savings on the wire and their cost: the error of messages, and the loss.

Both are lists, sorted by wire bytes. They are no scatter plots, because schemes often save the same bytes for the same
loss and their marks would cover each other.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, INK, power
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.plots.drawing import NamedLines, draw_mark, fit_name, label_right, list_axes, list_schemes, name
from hpcbench.report.quantities.traffic import ERROR, WIRE
from hpcbench.report.statistics import is_usable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CHANNELS, MOST_CODECS = 4, 5
"""Largest number of groups in the figure of errors, and of lines per group.

Those with the fewest message bytes become ``other``.
"""


@dataclass(frozen=True)
class CodedChannel:
    """A codec on a channel of one scheme: means over the scheme's runs."""

    channel: str
    codec: str
    scheme: str
    wire_over_message: float
    error: float
    """Relative error of the sampled values in the 2-norm."""
    message_bytes: float


def list_coded_channels(cell: Cell) -> list[CodedChannel]:
    """List the channels whose size and error are known. An error of 0 has no place on a logarithmic axis."""
    values_by_key: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for row in cell.rows:
        for channel in (channel for run in row.counted for channel in run.channels):
            if channel.coded_part == 0:
                continue  # the codec never ran: its sampled error did not affect this run
            wire, error = channel.wire_over_message, channel.sampled_error
            if isinstance(wire, float) and error is not None and wire > 0 and error > 0 and is_usable(error):
                channel_name = f"{channel.dimension} {(channel.phase or '').lower()}".strip()
                key = (channel_name, channel.codec or "", row.scheme)
                values_by_key.setdefault(key, []).append((wire, error, channel.message_bytes))
    return [
        CodedChannel(*key, *(fmean(column) for column in zip(*values, strict=True)))
        for key, values in values_by_key.items()
    ]


def plot_error_over_wire(submission: Submission, cell: Cell) -> Figure | None:
    """Plot a group for each channel and a line for each codec; None if no error was sampled."""
    everything = list_coded_channels(cell)
    if not everything:
        return None
    groups = [(channel, _group_by_codec(points)) for channel, points in _group(everything, "channel", MOST_CHANNELS)]

    def draw(fig: Any) -> None:
        lines = [NamedLines(name(channel), [fit_name(codec) for codec, _ in codecs]) for channel, codecs in groups]
        axes = list_axes(fig, lines, room=0.55)
        low, high = min(point.error for point in everything), max(point.error for point in everything)
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        step = 1 + len(exponents) // 6
        axes[0].set_xscale("log")
        axes[0].set_xlim(low / 2, high * 2)
        for axis, (_, codecs) in zip(axes, groups, strict=True):
            axis.set_xticks([10.0**k for k in exponents[::step]], [power(k) for k in exponents[::step]])
            axis.minorticks_off()
            axis.set_xlim(low / 2, high * 2)
            for y, (_, points) in enumerate(codecs):
                errors = [point.error for point in points]
                axis.plot([min(errors), max(errors)], [y, y], color=COLOURS[0], linewidth=1.2)
                axis.plot(errors, [y] * len(errors), "o", color=COLOURS[0], markerfacecolor="none", markeredgewidth=1.1)
            ratios = [_write_range([point.wire_over_message for point in points]) for _, points in codecs]
            label_right(axis, ratios, WIRE_HEAD)
        axes[-1].set_xlabel(ERROR.label)

    caption = (
        "Relative error (2-norm) of the sampled values of each channel, by codec: a mark for each scheme, mean of its"
        " runs. At the right: wire bytes per message byte. Codecs are sorted by it. Channels and codecs with few bytes"
        " share one line. Channels without error, without samples, or whose codec never ran are left out."
    )
    return Figure("error-over-wire", "Error and wire bytes", caption, draw)


WIRE_HEAD = "wire/message"


def _group(points: Sequence[CodedChannel], attribute: str, most: int) -> list[tuple[str, list[CodedChannel]]]:
    """Group the points by an attribute, the most message bytes first. Groups beyond `most` are merged."""
    groups: dict[str, list[CodedChannel]] = {}
    for point in points:
        groups.setdefault(getattr(point, attribute), []).append(point)
    ordered = sorted(groups.items(), key=lambda group: (-sum(member.message_bytes for member in group[1]), group[0]))
    if len(ordered) <= most:
        return ordered
    small = [point for _, members in ordered[most - 1 :] for point in members]
    return [*ordered[: most - 1], (f"other ({len(ordered) - most + 1} {attribute}s)", small)]


def _group_by_codec(points: Sequence[CodedChannel]) -> list[tuple[str, list[CodedChannel]]]:
    groups = _group(points, "codec", MOST_CODECS)
    return sorted(groups, key=lambda group: (-fmean(member.wire_over_message for member in group[1]), group[0]))


def _write_range(values: Sequence[float]) -> str:
    low, high = (f"{end(values):.2f}" for end in (min, max))
    return low if low == high else f"{low}-{high}"


_WIDE = 8.0
"""Largest difference in margins on a linear axis. Beyond it the margin would be too narrow to be visible."""


def plot_loss_over_wire(submission: Submission, cell: Cell) -> Figure | None:
    """Plot a line for each scheme, the most wire bytes at the top; None if no scheme has both values."""
    places = sorted(
        ((place, row) for row in cell.rows if (place := _find_place(row))),
        key=lambda pair: (-pair[0][0], pair[1].scheme),
    )
    if not places:
        return None
    rows = [row for _, row in places]
    margin = next((row.loss_margin for row in rows if row.loss_margin is not None), 0.0)

    def draw(fig: Any) -> None:
        (axes,) = list_schemes(fig, [(cell, rows)], room=0.55)
        axes.axvline(0, color=INK, linewidth=1.6, zorder=1)
        axes.axvspan(-margin, margin, color=INK, alpha=0.12, linewidth=0)
        for y, row in enumerate(rows):
            _draw_loss(axes, y, row)
        _set_scale(axes, rows, margin)
        label_right(axes, [f"{wire:.3f}" for (wire, _), _ in places], WIRE_HEAD)
        axes.set_xlabel("validation loss - loss of the baseline")

    caption = (
        "Difference of the last validation loss from the baseline's, mean of the pairs with its 95 % interval. At the"
        f" right: {WIRE.label}. Schemes are sorted by it. Grey: the margin ({margin:.2g}) within which a loss is no"
        " worse. Filled mark: significantly no worse, or significantly worse. Open mark: inconclusive, or one pair only"
        f" and no interval. If a difference exceeds {_WIDE:g} margins, the axis is logarithmic outside of the margin."
    )
    left_out = [name(row.scheme) for row in cell.rows if row.scheme != cell.baseline and not _find_place(row)]
    if left_out:
        caption += f" Left out, because they diverged or a value is not known: {', '.join(left_out)}."
    return Figure("loss-over-wire", "Loss and wire bytes", caption, draw)


def _find_place(row: SchemeRow) -> tuple[float, float] | None:
    wire = row.wire_over_message
    if row.loss is None or row.diverged or not isinstance(wire, float) or not math.isfinite(row.loss.estimate):
        return None
    return wire, row.loss.estimate


def _draw_loss(axes: "Axes", y: int, row: SchemeRow) -> None:
    if row.loss is None:
        return
    if row.loss.low is not None and row.loss.high is not None:
        axes.plot([row.loss.low, row.loss.high], [y, y], color=COLOURS[0], linewidth=1.6, solid_capstyle="butt")
    draw_mark(axes, row.loss.estimate, y, finding=row.loss_shown)


def _set_scale(axes: "Axes", rows: Iterable[SchemeRow], margin: float) -> None:
    """Set a linear axis, or an axis that is linear up to the margin and logarithmic beyond it."""
    from matplotlib.ticker import MaxNLocator

    ends = [end for row in rows if row.loss for end in (row.loss.estimate, row.loss.low, row.loss.high)]
    finite = [end for end in ends if end is not None and math.isfinite(end)]
    farthest = max(map(abs, finite), default=0.0)
    axes.margins(x=0.06)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+.2g}" if value else "0")
    if not margin or farthest <= _WIDE * margin:
        axes.xaxis.set_major_locator(MaxNLocator(4, symmetric=True))
        return
    axes.set_xscale("symlog", linthresh=margin, linscale=1)
    axes.minorticks_off()
    decades = [10.0**k for k in range(math.floor(math.log10(margin)), math.ceil(math.log10(farthest)) + 1)]
    beyond = [tick for tick in decades if 3 * margin <= tick <= farthest] or [decades[-1]]
    sides = [sign for sign in (-1, 1) if any(sign * end > 2 * margin for end in finite)]
    shown = beyond[-1 :: -(1 + len(beyond) // 2)] if len(sides) == 1 else beyond[-1:]
    axes.set_xticks(sorted([0.0, *(sign * tick for sign in sides for tick in shown)]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+.2g}" if value else "0")
