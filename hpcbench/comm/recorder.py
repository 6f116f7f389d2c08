"""Writes down what a rank is about while a step is traced: spans, in the order in which they end.

Where nothing is traced there is no recorder: whoever could tell one something asks for None and goes on.
"""

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any

from hpcbench.comm.accelerator import Event
from hpcbench.comm.clock import Clock, HostClock
from hpcbench.contract.trace import CODEC, STEP, STEPS, WAIT, TraceSpan

MOST = 200_000
"""Spans of a rank: some 30 MB of text."""


class Recorder:
    """Spans of one rank, over some steps.

    Parameters
    ----------
    clock
        The clock of what the rank computes.
    most
        Spans that are kept; what comes later is only counted, but for the steps themselves.

    Attributes
    ----------
    left_out : int
        Spans that were not kept.
    """

    def __init__(self, clock: Clock, most: int = MOST) -> None:
        self._clock, self._most = clock, most
        self._rows: list[_Row] = []
        self._step = 0
        self.left_out = 0

    def begin(self, step: int) -> None:
        """What follows is of this step. Clocks of a host and of a device are set to each other anew."""
        self._step = step
        self._mark, self._origin = self._clock.origin()

    def of(self, channel: str) -> "ChannelRecorder":
        """What a channel tells."""
        return ChannelRecorder(self, channel)

    def span(self, track: str, name: str, clock: Clock, begin: Any, end: Any, about: Mapping[str, Any]) -> None:
        """Between two marks of a clock: the host's, or that of what the rank computes."""
        if isinstance(clock, HostClock):
            self.add(track, name, begin, end, about)
            return
        row = self.add(track, name, inf, inf, about)  # known when the clock is settled
        if row is not None:
            clock.count(self._mark, begin, partial(row.starts, self._origin))
            clock.count(self._mark, end, partial(row.stops, self._origin))

    def device_span(self, track: str, name: str, begin: Event, end: Event, about: Mapping[str, Any]) -> None:
        """Between two places that a device has come to."""
        first, last = (self._origin + event.since(self._mark) for event in (begin, end))
        self.add(track, name, first, last, about)

    def add(self, track: str, name: str, begin: float, end: float, about: Mapping[str, Any]) -> "_Row | None":
        """Between two times of the host; None where there is no room for it any more."""
        if len(self._rows) >= self._most and name != STEP:
            self.left_out += 1
            return None
        row = _Row(track, name, begin, end, self._step, about)
        self._rows.append(row)
        return row

    def spans(self) -> tuple[TraceSpan, ...]:
        """All that was written down; the clocks must have been settled."""
        return tuple(row.span() for row in self._rows)


class _Row:
    """A span whose times may not be known yet."""

    __slots__ = ("about", "begin", "end", "name", "step", "track")

    def __init__(self, track: str, name: str, begin: float, end: float, step: int, about: Mapping[str, Any]) -> None:
        self.track, self.name, self.step, self.about = track, name, step, about
        self.begin, self.end = begin, end

    def starts(self, origin: float, seconds: float) -> None:
        self.begin = origin + seconds

    def stops(self, origin: float, seconds: float) -> None:
        self.end = origin + seconds

    def span(self) -> TraceSpan:
        return TraceSpan(self.track, self.name, self.begin, self.end, self.step, self.about)


class ChannelRecorder:
    """Writes down the calls of one channel.

    Parameters
    ----------
    recorder
        The recorder of the rank.
    channel
        The words of the channel.
    """

    def __init__(self, recorder: Recorder, channel: str) -> None:
        self._recorder, self._channel = recorder, channel
        self._about = {"channel": channel}

    def call(self, begun: float, seconds: float, message_bytes: int, wire_bytes: int) -> None:
        """A call of the channel, from its begin to its end by the host's clock."""
        about = {"message_bytes": message_bytes, "wire_bytes": wire_bytes}
        self._recorder.add(self._channel, self._channel, begun, begun + seconds, about)

    def waited(self, clock: Clock, begin: Any, end: Any) -> None:
        """The rank has waited for the channel between two marks."""
        self._recorder.span(STEPS, WAIT, clock, begin, end, self._about)

    def coded(self, what: str, begin: float, end: float) -> None:
        """The codec has worked on the host."""
        self._recorder.add(CODEC, what, begin, end, self._about)

    def coded_on_device(self, what: str, begin: Event, end: Event) -> None:
        """The codec has worked on the device."""
        self._recorder.device_span(CODEC, what, begin, end, self._about)
