"""Figure of wire savings and message errors, with one row per codec, sorted by wire bytes.

In a scatter plot, markers would overlap, because codecs often save the same number of bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.plot_style import COLOURS, power
from hpcbench.present.document import Figure
from hpcbench.report.compare import Cell
from hpcbench.report.plots.drawing import NamedLines, fit_name, label_right, list_axes, name
from hpcbench.report.quantities.traffic import ERROR
from hpcbench.report.statistics import is_usable

MOST_CHANNELS, MOST_CODECS = 4, 5
"""Maximum number of groups in the figure, and of lines per group.

Groups and lines with the fewest message bytes are merged into ``other``.
"""


@dataclass(frozen=True)
class CodedChannel:
    """Codec of a scheme on one channel, with means over the scheme's runs."""

    channel: str
    codec: str
    scheme: str
    wire_over_message: float
    error: float
    """Relative error of the sampled values (2-norm)."""
    message_bytes: float


def list_coded_channels(cell: Cell) -> list[CodedChannel]:
    """List the channels with known size and error. Errors of 0 are excluded because the axis is logarithmic."""
    values_by_key: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for row in cell.rows:
        for channel in (channel for run in row.counted for channel in run.channels):
            if channel.coded_part == 0:
                continue  # the codec never ran, so its sampled error did not affect the run
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
    """Plot one group per channel and one line per codec, or return None if no error was sampled."""
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
        "Relative error (2-norm) of the sampled values of each channel, by codec. Each mark is the mean of a "
        "scheme's runs. On the right: wire bytes per message byte, the order of the codecs. Channels and "
        "codecs with few bytes share one line. Channels without error, without samples, or whose codec never ran "
        "are left out."
    )
    return Figure("error-over-wire", "Error and wire bytes", caption, draw)


WIRE_HEAD = "wire/message"


def _group(points: Sequence[CodedChannel], attribute: str, most: int) -> list[tuple[str, list[CodedChannel]]]:
    """Group the points by an attribute, in descending order of message bytes. Groups beyond `most` are merged."""
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
