"""Traffic of a run, for tables and plots."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.contract.text import make_printable

_LARGEST = 1 << 62
"""Largest plausible count in a run."""
Unknown = Literal["unknown"]
"""Marker for unknown byte counts: environment variables of the scheme may make the MPI library compress messages."""
DIMENSIONS = ("TP", "SP", "CP", "EP", "PP", "DP", "ZERO", "EXACT")
"""Parallel dimensions, in display order. Codecs must not change EXACT traffic."""


@dataclass(frozen=True)
class TrafficSum:
    """Traffic of a channel, or of all channels of a dimension, over the counted steps.

    Bytes and calls are summed over all ranks and steps. Times are in seconds per step and rank.
    """

    dimension: str
    phase: str | None
    """Phase, or None if it is unknown or the row describes a whole dimension."""
    kind: str | None
    """Kind of traffic, or None if it is unknown or the row describes a whole dimension."""
    axis: str | None
    """Axis of the tensor grid, or None for other traffic and for whole dimensions."""
    codec: str | None
    """Codec, or None if it is unknown or the row describes a dimension whose channels use different codecs."""
    calls: int
    plain_calls: int
    """Calls that did not use the channel's codec, because it would have cost time or because a rule excluded it."""
    message_bytes: int
    """Bytes before encoding."""
    to_code: int
    """Message bytes of channels with a codec."""
    coded_bytes: int | Unknown
    """Encoded message bytes, unknown if the log does not contain them."""
    wire_bytes: int | Unknown
    """Bytes after encoding."""
    network_bytes: int | Unknown
    """Wire bytes sent between nodes. Collectives of the MPI library do not report these bytes and count as 0."""
    encode_s: float
    decode_s: float
    transfer_s: float
    """Time of the calls in seconds, excluding encoding and decoding."""
    exposed_s: float
    """Time in seconds during which callers waited for the calls."""
    hidden_s: float
    """Time in seconds during which calls overlapped with computation."""
    sampled_error: float | None
    """Relative error of the sampled values (2-norm). For a dimension, this is the maximum over the channels.

    The value is None if no values were sampled.
    """

    @property
    def key(self) -> tuple[str, ...]:
        """Dimension, phase, kind and axis, as far as they are known."""
        return tuple(word for word in (self.dimension, self.phase, self.kind, self.axis) if word)

    @property
    def wire_over_message(self) -> float | Unknown | None:
        """Wire bytes per message byte, or None if nothing was sent."""
        return divide_bytes(self.wire_bytes, self.message_bytes)

    @property
    def coded_part(self) -> float | Unknown | None:
        """Encoded bytes as a fraction of the bytes of channels with a codec, or None if there are no such bytes."""
        return divide_bytes(self.coded_bytes, self.to_code)


_COUNTS = ("calls", "plain_calls", "message_bytes")
_SECONDS = ("encode_s", "decode_s", "transfer_s", "exposed_s", "hidden_s")
_MAY_BE_UNKNOWN = ("coded_bytes", "wire_bytes", "network_bytes")
"""Fields of `TrafficSum` whose sum may be unknown."""


@dataclass(frozen=True)
class HostTraffic:
    """Traffic between devices and hosts for offloaded states, in bytes per step and rank."""

    down: float
    """Bytes from the device: reduced gradients."""
    up: float
    """Bytes to the device: updated weights."""


@dataclass(frozen=True)
class TimeSplit:
    """Breakdown of the step time in seconds per step and rank, averaged over counted steps and ranks.

    A step consists of computation and exposed communication. Communication is divided in two ways: into exposed and
    hidden time, and into encoding, decoding and transfer. Several calls may be in progress at the same time.
    """

    step: float
    compute: float
    """Time in seconds during which the rank did not wait for messages."""
    exposed: float
    hidden: float
    encode: float
    decode: float
    transfer: float

    @property
    def exposed_part(self) -> float:
        """Exposed communication as a fraction of the step time."""
        return self.exposed / self.step


def read_channels(log: RunLog, ranks: int | None, *, has_wire_bytes: bool) -> tuple[TrafficSum, ...]:
    """Return the traffic of each channel from the ``traffic`` event.

    The list is empty if the number of steps or ranks is unknown, unless the event contains no waiting times.

    If `has_wire_bytes` is False, wire bytes are unknown, because the MPI library may have compressed data.
    """
    rows, steps = log.read_event(events.TrafficTotals).channels, len(find_window(log))
    shares = steps * (ranks or 0)
    if not rows or (not shares and has_times(log)):
        return ()
    return tuple(_read_channel(row, shares, has_wire_bytes=has_wire_bytes) for row in rows if row.dimension is not None)


def has_times(log: RunLog) -> bool:
    """Return whether the ``traffic`` event contains waiting times.

    The events of users' programs do not contain them.
    """
    rows = log.read_event(events.TrafficTotals).channels or ()
    return all(row.exposed_s is not None for row in rows)


def read_host_traffic(log: RunLog, ranks: int | None) -> HostTraffic | None:
    """Return the traffic between devices and hosts from the ``traffic`` event, or None if missing."""
    event, shares = log.read_event(events.TrafficTotals), len(find_window(log)) * (ranks or 0)
    down, up = event.host_down_bytes, event.host_up_bytes
    if not shares or down is None or up is None or not (0 <= down < _LARGEST and 0 <= up < _LARGEST):
        return None
    return HostTraffic(down / shares, up / shares)


def find_window(log: RunLog) -> range:
    """Return the step numbers that the ``traffic`` event covers. The range is empty if there is no such event."""
    event = log.read_event(events.TrafficTotals)
    first, last = event.from_step, event.to_step
    if first is None or last is None or not 0 < first <= last < _LARGEST:
        return range(0)
    return range(first, last + 1)


def select_counted(log: RunLog, name: str) -> list[float]:
    """Return a quantity of the steps that the ``traffic`` event covers."""
    steps = find_window(log)
    if log.last_step is not None and log.last_step.step < steps.stop:
        return log.steps.column(name, first=steps.start)
    return [value for step, value in log.steps.columns("step", name, first=steps.start) if step < steps.stop]


def sum_by_dimension(rows: Sequence[TrafficSum]) -> tuple[TrafficSum, ...]:
    """Sum the traffic by dimension, in order of first appearance."""
    names = dict.fromkeys(row.dimension for row in rows)
    return tuple(_add_up(name, [row for row in rows if row.dimension == name]) for name in names)


def sum_by_axis(rows: Sequence[TrafficSum]) -> tuple[TrafficSum, ...]:
    """Sum the traffic by axis of the tensor grid, excluding exact traffic."""
    mine = [row for row in rows if row.axis and row.dimension != "EXACT"]
    names = sorted({row.axis or "" for row in mine})
    return tuple(replace(_add_up("TP", [row for row in mine if row.axis == name]), axis=name) for name in names)


def split_time(rows: Iterable[TrafficSum], step_seconds: Sequence[float]) -> TimeSplit | None:
    """Split the step time. Return None if there are no steps or no traffic, because communication is then unknown."""
    rows = list(rows)
    if not rows or not step_seconds or not sum(step_seconds) > 0:
        return None
    step = sum(step_seconds) / len(step_seconds)
    seconds = {name.removesuffix("_s"): sum(getattr(row, name) for row in rows) for name in _SECONDS}
    return TimeSplit(step=step, compute=step - seconds["exposed"], **seconds)


def _read_channel(row: events.ChannelTraffic, shares: int, *, has_wire_bytes: bool) -> TrafficSum:
    def read_count(name: str) -> int:
        count = getattr(row, name)
        return count if count is not None and 0 <= count < _LARGEST else 0

    def read_seconds(name: str) -> float:
        seconds = getattr(row, name)
        return seconds / shares if shares and seconds is not None and isfinite(seconds) else 0.0

    to_code = read_count("message_bytes") if row.codec not in (None, "none") else 0
    coded: int | Unknown = min(read_count("coded_bytes"), to_code)
    if to_code and row.coded_bytes is None:
        coded = "unknown"  # missing from logs of earlier versions
    values: dict[str, Any] = {name: read_count(name) for name in _COUNTS}
    values |= {name: read_seconds(name) for name in _SECONDS}
    values |= {name: read_count(name) if has_wire_bytes else "unknown" for name in ("wire_bytes", "network_bytes")}
    for name in ("dimension", "phase", "kind", "axis", "codec"):
        text = getattr(row, name)
        values[name] = None if text is None else make_printable(text, 40)
    return TrafficSum(
        **values,
        to_code=to_code,
        coded_bytes=coded,
        sampled_error=row.sampled_error,
    )


def _add_up(dimension: str, rows: list[TrafficSum]) -> TrafficSum:
    codecs = {row.codec for row in rows}
    sums: dict[str, Any] = {name: sum(getattr(row, name) for row in rows) for name in (*_COUNTS, *_SECONDS, "to_code")}
    sums |= {name: add_bytes([getattr(row, name) for row in rows]) for name in _MAY_BE_UNKNOWN}
    return TrafficSum(
        dimension=dimension,
        phase=None,
        kind=None,
        axis=None,
        codec=codecs.pop() if len(codecs) == 1 else None,
        **sums,
        sampled_error=max((row.sampled_error for row in rows if row.sampled_error is not None), default=None),
    )


def compute_coded_part(rows: Sequence[TrafficSum]) -> float | Unknown | None:
    """Return the encoded bytes as a fraction of the bytes of channels with a codec, or None if there are none."""
    return divide_bytes(add_bytes([row.coded_bytes for row in rows]), sum(row.to_code for row in rows))


def divide_bytes(part: int | Unknown, nbytes: int) -> float | Unknown | None:
    """Return `part` as a fraction of `nbytes`, or None if there are no bytes."""
    if part == "unknown":
        return part
    return part / nbytes if nbytes else None


def add_bytes(values: Sequence[int | Unknown]) -> int | Unknown:
    """Return the sum of values. The sum is unknown if any value is unknown."""
    numbers = [value for value in values if value != "unknown"]
    return sum(numbers) if len(numbers) == len(values) else "unknown"
