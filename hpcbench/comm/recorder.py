"""Trace recorder for the spans of a rank, in order of completion.

In steps without tracing, the recorder is None, so callers must test for None.
"""

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any

from hpcbench.comm.accelerator import StreamEvent
from hpcbench.comm.clock import Clock, HostClock
from hpcbench.contract.trace import CODEC, STEP, STEPS, WAIT, TraceSpan

MOST = 200_000
"""Maximum number of spans per rank, about 30 MB of text."""


class Recorder:
    """Trace spans of one rank over several steps.

    Parameters
    ----------
    clock
        Clock of the rank's computation.
    most
        Maximum number of spans. Later spans are only counted, except step spans.

    Attributes
    ----------
    left_out : int
        Number of spans that were not recorded.
    """

    def __init__(self, clock: Clock, most: int = MOST) -> None:
        self._clock, self._most = clock, most
        self._rows: list[_Row] = []
        self._step = 0
        self.left_out = 0

    def begin(self, step: int) -> None:
        """Begin a step and resynchronize the host and device clocks."""
        self._step = step
        self._mark, self._origin = self._clock.origin()

    def of(self, channel: str) -> "ChannelRecorder":
        """Create the recorder of a channel."""
        return ChannelRecorder(self, channel)

    def span(self, track: str, name: str, clock: Clock, begin: Any, end: Any, about: Mapping[str, Any]) -> None:
        """Record a span between two marks of the host's clock or of the computation's clock."""
        if isinstance(clock, HostClock):
            self.add(track, name, begin, end, about)
            return
        row = self.add(track, name, inf, inf, about)  # the times are set when the clock is settled
        if row is not None:
            clock.count(self._mark, begin, partial(row.starts, self._origin))
            clock.count(self._mark, end, partial(row.stops, self._origin))

    def device_span(
        self, track: str, name: str, begin: StreamEvent, end: StreamEvent, about: Mapping[str, Any]
    ) -> None:
        """Record a span between two completed device events."""
        first, last = (self._origin + event.since(self._mark) for event in (begin, end))
        self.add(track, name, first, last, about)

    def add(self, track: str, name: str, begin: float, end: float, about: Mapping[str, Any]) -> "_Row | None":
        """Record a span between two host times. If the recorder is full, return None."""
        if len(self._rows) >= self._most and name != STEP:
            self.left_out += 1
            return None
        row = _Row(track, name, begin, end, self._step, about)
        self._rows.append(row)
        return row

    def spans(self) -> tuple[TraceSpan, ...]:
        """Return all recorded spans. The clocks must have been settled."""
        return tuple(row.span() for row in self._rows)


class _Row:
    """A span whose times may be set later."""

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
    """Trace recorder of one channel's calls.

    Parameters
    ----------
    recorder
        The rank's recorder.
    channel
        Name of the channel.
    """

    def __init__(self, recorder: Recorder, channel: str) -> None:
        self._recorder, self._channel = recorder, channel
        self._about = {"channel": channel}

    def call(self, begun: float, seconds: float, message_bytes: int, wire_bytes: int) -> None:
        """Record a call, given its start and duration on the host's clock."""
        about = {"message_bytes": message_bytes, "wire_bytes": wire_bytes}
        self._recorder.add(self._channel, self._channel, begun, begun + seconds, about)

    def call_on_device(self, begin: StreamEvent, end: StreamEvent, message_bytes: int, wire_bytes: int) -> None:
        """Record a call between two completed device events."""
        about = {"message_bytes": message_bytes, "wire_bytes": wire_bytes}
        self._recorder.device_span(self._channel, self._channel, begin, end, about)

    def waited(self, clock: Clock, begin: Any, end: Any) -> None:
        """Record that the rank waited for the channel between two marks."""
        self._recorder.span(STEPS, WAIT, clock, begin, end, self._about)

    def coded(self, what: str, begin: float, end: float) -> None:
        """Record codec work on the host."""
        self._recorder.add(CODEC, what, begin, end, self._about)

    def coded_on_device(self, what: str, begin: StreamEvent, end: StreamEvent) -> None:
        """Record codec work on the device."""
        self._recorder.device_span(CODEC, what, begin, end, self._about)
