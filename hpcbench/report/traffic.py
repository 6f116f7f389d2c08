"""What a run says of its traffic, as numbers that tables and plots can use."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.contract.text import printable

_LARGEST = 1 << 62
"""Numbers beyond it are none that a run can have counted."""
Unknown = Literal["unknown"]
"""Of what the MPI library sent, where a scheme's variables may make it compress: it does not say."""
DIMENSIONS = ("TP", "SP", "CP", "EP", "PP", "DP", "ZERO", "EXACT")
"""In the order in which they are shown. EXACT is what no codec may touch."""


@dataclass(frozen=True)
class Traffic:
    """What a channel, or all channels of a dimension, carried in the steps that were counted.

    Bytes and calls are sums over all ranks and steps; seconds are a step and rank.
    """

    dimension: str
    phase: str | None
    """None for a dimension, and where the log does not say."""
    kind: str | None
    """None for a dimension, and where the log does not say."""
    axis: str | None
    """Of a tensor grid; None for other traffic, and for a dimension."""
    codec: str | None
    """None for a dimension whose channels differ, and where the log does not say."""
    calls: int
    plain_calls: int
    """Calls without the channel's codec: because it would have lost time, or because the scheme's rule says so."""
    message_bytes: int
    """Before the codec."""
    to_code: int
    """Those of them that a channel with a codec carried."""
    coded_bytes: int | Unknown
    """Those of them that went through the codec; unknown where the log does not say."""
    wire_bytes: int | Unknown
    """After the codec."""
    network_bytes: int | Unknown
    """Wire bytes that left a node. The MPI library's own collectives do not say: they count as 0."""
    encode_s: float
    decode_s: float
    transfer_s: float
    """The rest of the time that the calls took."""
    exposed_s: float
    """Time in which the caller waited for the calls."""
    hidden_s: float
    """Time in which the calls moved while the caller computed."""
    sampled_error: float | None
    """Relative error of the sampled values, 2-norm; of a dimension, its channels' largest. None where none was
    sampled."""

    @property
    def wire_over_message(self) -> float | Unknown | None:
        """Wire bytes per message byte; None where nothing was sent."""
        return wire_over_message(self.wire_bytes, self.message_bytes)

    @property
    def coded_part(self) -> float | Unknown | None:
        """What went through the codec, as a part of what channels with a codec carried; None without such."""
        return part_of(self.coded_bytes, self.to_code)


@dataclass(frozen=True)
class HostLink:
    """What crossed the links between devices and hosts where states are offloaded, in bytes a step and rank."""

    down: float
    """From the device: reduced gradients."""
    up: float
    """To the device: updated weights."""


@dataclass(frozen=True)
class TimeSplit:
    """Where the time of a step goes, in seconds a step and rank: means over the steps and ranks that were counted.

    The step is computation and exposed communication. Communication is divided twice: exposed and hidden make up the
    same calls as encoding, decoding and transfer, of which several may be under way at a time.
    """

    step: float
    compute: float
    """The step without the time in which the rank waited for messages."""
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
    """What each channel carried, as the run's ``traffic`` event says.

    Parameters
    ----------
    ranks
        Of the run; without them no channel has seconds, and none is given.
    known
        Whether wire bytes are those of the network: not where the MPI library may have compressed by itself.
    """
    rows, steps = log.said(events.Traffic).channels, len(window(log))
    if not rows or not steps or not ranks:
        return ()
    return tuple(_channel(row, steps * ranks, known=known) for row in rows if row.dimension is not None)


def host_link(log: RunLog, ranks: int | None) -> HostLink | None:
    """What crossed the hosts' links, as the run's ``traffic`` event says; None where it does not."""
    event, shares = log.said(events.Traffic), len(window(log)) * (ranks or 0)
    down, up = event.host_down_bytes, event.host_up_bytes
    if not shares or down is None or up is None or not (0 <= down < _LARGEST and 0 <= up < _LARGEST):
        return None
    return HostLink(down / shares, up / shares)


def window(log: RunLog) -> range:
    """Numbers of the steps that the ``traffic`` event counts; empty where there is none."""
    event = log.said(events.Traffic)
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
    """Sums over the channels of each dimension, in the order in which they first appear."""
    names = dict.fromkeys(row.dimension for row in rows)
    return tuple(_sum(name, [row for row in rows if row.dimension == name]) for name in names)


def by_axis(rows: Sequence[Traffic]) -> tuple[Traffic, ...]:
    """Sums over the channels of each axis of a tensor grid, by the axes' names; what is exact is left out."""
    mine = [row for row in rows if row.axis and row.dimension != "EXACT"]
    names = sorted({row.axis or "" for row in mine})
    return tuple(replace(_sum("TP", [row for row in mine if row.axis == name]), axis=name) for name in names)


def time_split(rows: Iterable[Traffic], step_seconds: Sequence[float]) -> TimeSplit | None:
    """Where the time of a step goes.

    Parameters
    ----------
    rows
        Of all channels.
    step_seconds
        Of the steps that they count.

    Returns
    -------
    TimeSplit or None
        None without steps or without traffic: then nothing says what was communication.
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
        return printable(said, 40) if said is not None else None

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
    """Wire bytes per message byte; None where nothing was sent."""
    return part_of(wire, message)


def coded_part(rows: Sequence[Traffic]) -> float | Unknown | None:
    """What went through codecs, as a part of what channels with a codec carried; None without such."""
    return part_of(total([row.coded_bytes for row in rows]), sum(row.to_code for row in rows))


def part_of(part: int | Unknown, whole: int) -> float | Unknown | None:
    """A part of some bytes; None of none."""
    if part == "unknown":
        return part
    return part / whole if whole else None


def total(values: Sequence[int | Unknown]) -> int | Unknown:
    """Their sum, unless one is unknown."""
    known = [value for value in values if value != "unknown"]
    return sum(known) if len(known) == len(values) else "unknown"
