"""Error of what is sent against its size, channel by channel: what each codec makes of the traffic it is given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_labels import place_labels
from hpcbench.plot_style import COLOURS, grid, power
from hpcbench.report.compare import Cell
from hpcbench.report.document import Figure
from hpcbench.report.plots.panels import grid_of
from hpcbench.report.statistics import usable


@dataclass(frozen=True)
class Sent:
    """A codec on a channel of one scheme, mean of the scheme's runs."""

    channel: str
    codec: str
    scheme: str
    wire_over_message: float
    error: float
    """Relative 2-norm of the sampled values' error."""


def sent(cell: Cell) -> list[Sent]:
    """What is known of size and error: one of 0 has no place on a logarithmic axis."""
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
    """A panel a channel, a mark a scheme with its codec's name; None where no error was sampled."""
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
        fig.supxlabel("wire bytes / message bytes", fontsize="medium")
        fig.supylabel("relative error", fontsize="medium")
        own_names = [_names([point for point in everything if point.channel == channel]) for channel in channels]
        place_labels(fig, list(zip(axes, own_names, strict=True)))

    caption = (
        "Relative error (2-norm) of the sampled values of each channel against its wire bytes per message byte: a mark"
        " a scheme, mean of its runs, with the name of its codec. Channels without error, or of which none was sampled,"
        " or whose codec never ran, are not shown."
    )
    return Figure("error-over-wire", "Error against wire bytes", caption, draw)


def _names(points: Sequence[Sent]) -> list[tuple[str, float, float]]:
    """Each codec's name once, in the midst of its marks."""
    codecs = dict.fromkeys(point.codec for point in points)
    groups = [(codec, [point for point in points if point.codec == codec]) for codec in codecs]
    return [
        (codec, fmean(p.wire_over_message for p in own), math.exp(fmean(math.log(p.error) for p in own)))
        for codec, own in groups
    ]
