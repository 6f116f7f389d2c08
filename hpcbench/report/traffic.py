"""The traffic of a run as numbers for tables and plots."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.contract.text import make_printable

_LARGEST = 1 << 62
"""Largest number that a run can have counted."""
Unknown = Literal["unknown"]
"""Marks bytes that are not known, because a scheme's variables may make the MPI library compress."""
DIMENSIONS = ("TP", "SP", "CP", "EP", "PP", "DP", "ZERO", "EXACT")
"""The dimensions in the order in which they are shown. No codec may touch EXACT."""


@dataclass(frozen=True)
class Traffic:
    """Traffic of a channel, or of all channels of a dimension, in the counted steps.

    Bytes and calls are sums over all ranks and steps. Seconds are per step and rank.
    """

    dimension: str
    phase: str | None
    """Phase; None for a dimension, and if the log does not give it."""
    kind: str | None
    """Kind; None for a dimension, and if the log does not give it."""
    axis: str | None
    """Axis of the tensor grid; None for other traffic, and for a dimension."""
    codec: str | None
    """Codec; None for a dimension whose channels differ, and if the log does not give it."""
    calls: int
    plain_calls: int
    """Calls without the channel's codec, because it would lose time or a rule of the scheme excludes it."""
    message_bytes: int
    """Bytes before the codec."""
    to_code: int
    """Message bytes of channels with a codec."""
    coded_bytes: int | Unknown
    """Message bytes that went through the codec; unknown if the log does not give them."""
    wire_bytes: int | Unknown
    """Bytes after the codec."""
    network_bytes: int | Unknown
    """Wire bytes that left a node. The MPI library's own collectives do not report them and count as 0."""
    encode_s: float
    decode_s: float
    transfer_s: float
    """The remaining seconds of the calls."""
    exposed_s: float
    """Seconds in which the caller waited for the calls."""
    hidden_s: float
    """Seconds in which the calls moved data while the caller computed."""
    sampled_error: float | None
    """Relative error of the sampled values in the 2-norm; for a dimension, its channels' largest.

    None if none was sampled.
    """

    @property
    def wire_over_message(self) -> float | Unknown | None:
        """Wire bytes per message byte; None if nothing was sent."""
        return wire_over_message(self.wire_bytes, self.message_bytes)

    @property
    def coded_part(self) -> float | Unknown | None:
        """Part of the bytes that went through the codec, of those of channels with a codec; None without such bytes."""
        return part_of(self.coded_bytes, self.to_code)


@dataclass(frozen=True)
class HostLink:
    """Traffic over the links between devices and hosts, where states are offloaded, in bytes per step and rank."""

    down: float
    """Bytes from the device: reduced gradients."""
    up: float
    """Bytes to the device: updated weights."""


@dataclass(frozen=True)
class TimeSplit:
    """Split of a step's time in seconds per step and rank: means over the counted steps and ranks.

    The step is computation and exposed communication. Communication is divided in two ways: the same calls are exposed
    and hidden, and they are encoding, decoding and transfer. Several calls may be under way at a time.
    """

    step: float
    compute: float
    """Seconds of the step in which the rank did not wait for messages."""
    exposed: float
    hidden: float
    encode: float
    decode: float
    transfer: float

    @property
    def exposed_part(self) -> float:
        """Exposed communication as a part of the step."""
        return self.exposed / self.step


def channels(log: RunLog, ranks: int | None, *, known: bool) -> tuple[Traffic, ...]:
    """Traffic of each channel, from the run's ``traffic`` event.

    Parameters
    ----------
    ranks
        Number of ranks of the run. Without it channels have no seconds, and none is given.
    known
        Whether wire bytes are those of the network. They are not if the MPI library may have compressed by itself.
    """
    rows, steps = log.read_event(events.TrafficTotals).channels, len(window(log))
    if not rows or not steps or not ranks:
        return ()
    return tuple(_channel(row, steps * ranks, known=known) for row in rows if row.dimension is not None)


def timed(log: RunLog) -> bool:
    """Whether the ``traffic`` event says how long callers waited. That of a program of others does not."""
    rows = log.read_event(events.TrafficTotals).channels or ()
    return all(row.exposed_s is not None for row in rows)


def host_link(log: RunLog, ranks: int | None) -> HostLink | None:
    """Traffic over the hosts' links, from the run's ``traffic`` event; None if the event does not give it."""
    event, shares = log.read_event(events.TrafficTotals), len(window(log)) * (ranks or 0)
    down, up = event.host_down_bytes, event.host_up_bytes
    if not shares or down is None or up is None or not (0 <= down < _LARGEST and 0 <= up < _LARGEST):
        return None
    return HostLink(down / shares, up / shares)


def window(log: RunLog) -> range:
    """Numbers of the steps that the ``traffic`` event counts; empty if there is no such event."""
    event = log.read_event(events.TrafficTotals)
    first, last = event.from_step, event.to_step
    if first is None or last is None or not 0 < first <= last < _LARGEST:
        return range(0)
    return range(first, last + 1)


def counted(log: RunLog, name: str) -> list[float]:
    """One quantity of the steps that the ``traffic`` event counts."""
    steps = window(log)
    if log.last_step is not None and log.last_step.step < steps.stop:
        return log.steps.column(name, first=steps.start)
    return [value for step, value in log.steps.columns("step", name, first=steps.start) if step < steps.stop]


def by_dimension(rows: Sequence[Traffic]) -> tuple[Traffic, ...]:
    """Return sums over the channels of each dimension, in the order in which they first appear."""
    names = dict.fromkeys(row.dimension for row in rows)
    return tuple(_sum(name, [row for row in rows if row.dimension == name]) for name in names)


def by_axis(rows: Sequence[Traffic]) -> tuple[Traffic, ...]:
    """Return sums over the channels of each axis of a tensor grid, by the axes' names, without exact traffic."""
    mine = [row for row in rows if row.axis and row.dimension != "EXACT"]
    names = sorted({row.axis or "" for row in mine})
    return tuple(replace(_sum("TP", [row for row in mine if row.axis == name]), axis=name) for name in names)


def time_split(rows: Iterable[Traffic], step_seconds: Sequence[float]) -> TimeSplit | None:
    """Split the time of a step.

    Parameters
    ----------
    rows
        Traffic of all channels.
    step_seconds
        Seconds of the steps that the channels count.

    Returns
    -------
    TimeSplit or None
        None without steps or without traffic, because the communication is then not known.
    """
    rows = list(rows)
    if not rows or not step_seconds or not sum(step_seconds) > 0:
        return None
    step = sum(step_seconds) / len(step_seconds)
    exposed = sum(row.exposed_s for row in rows)
    return TimeSplit(
        step=step,
        compute=step - exposed,
        exposed=exposed,
        hidden=sum(row.hidden_s for row in rows),
        encode=sum(row.encode_s for row in rows),
        decode=sum(row.decode_s for row in rows),
        transfer=sum(row.transfer_s for row in rows),
    )


def _channel(row: events.ChannelTraffic, shares: int, *, known: bool) -> Traffic:
    def count(said: int | None) -> int:
        return said if said is not None and 0 <= said < _LARGEST else 0

    def seconds(said: float | None) -> float:
        return said / shares if said is not None and isfinite(said) else 0.0

    def word(said: str | None) -> str | None:
        return make_printable(said, 40) if said is not None else None

    def coded() -> int | Unknown:
        # Logs of earlier versions do not say it.
        return "unknown" if to_code and row.coded_bytes is None else min(count(row.coded_bytes), to_code)

    to_code = count(row.message_bytes) if row.codec not in (None, "none") else 0
    return Traffic(
        dimension=word(row.dimension) or "",
        phase=word(row.phase),
        kind=word(row.kind),
        axis=word(row.axis),
        codec=word(row.codec),
        calls=count(row.calls),
        plain_calls=count(row.plain_calls),
        message_bytes=count(row.message_bytes),
        to_code=to_code,
        coded_bytes=coded(),
        wire_bytes=count(row.wire_bytes) if known else "unknown",
        network_bytes=count(row.network_bytes) if known else "unknown",
        encode_s=seconds(row.encode_s),
        decode_s=seconds(row.decode_s),
        transfer_s=seconds(row.transfer_s),
        exposed_s=seconds(row.exposed_s),
        hidden_s=seconds(row.hidden_s),
        sampled_error=row.sampled_error,
    )


def _sum(dimension: str, rows: list[Traffic]) -> Traffic:
    codecs = {row.codec for row in rows}
    errors = [row.sampled_error for row in rows if row.sampled_error is not None]
    return Traffic(
        dimension=dimension,
        phase=None,
        kind=None,
        axis=None,
        codec=codecs.pop() if len(codecs) == 1 else None,
        calls=sum(row.calls for row in rows),
        plain_calls=sum(row.plain_calls for row in rows),
        message_bytes=sum(row.message_bytes for row in rows),
        to_code=sum(row.to_code for row in rows),
        coded_bytes=total([row.coded_bytes for row in rows]),
        wire_bytes=total([row.wire_bytes for row in rows]),
        network_bytes=total([row.network_bytes for row in rows]),
        encode_s=sum(row.encode_s for row in rows),
        decode_s=sum(row.decode_s for row in rows),
        transfer_s=sum(row.transfer_s for row in rows),
        exposed_s=sum(row.exposed_s for row in rows),
        hidden_s=sum(row.hidden_s for row in rows),
        sampled_error=max(errors) if errors else None,
    )


def wire_over_message(wire: int | Unknown, message: int) -> float | Unknown | None:
    """Wire bytes per message byte; None if nothing was sent."""
    return part_of(wire, message)


def coded_part(rows: Sequence[Traffic]) -> float | Unknown | None:
    """Part of the bytes that went through codecs, of those of channels with a codec; None without such bytes."""
    return part_of(total([row.coded_bytes for row in rows]), sum(row.to_code for row in rows))


def part_of(part: int | Unknown, whole: int) -> float | Unknown | None:
    """Return a part of some bytes; None if there are no bytes."""
    if part == "unknown":
        return part
    return part / whole if whole else None


def total(values: Sequence[int | Unknown]) -> int | Unknown:
    """Return the sum of values; unknown if one of them is."""
    known = [value for value in values if value != "unknown"]
    return sum(known) if len(known) == len(values) else "unknown"
