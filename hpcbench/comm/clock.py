"""Clocks that measure the time between two points of a process.

A GPU works asynchronously: the host's clock shows when work was launched, and stream events show when the work was
completed. The duration of a span is available only after the device has reached the end of the span. Waiting within a
step would slow down the step. Therefore spans are collected, and are counted when the clock is settled.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from hpcbench.comm.accelerator import Accelerator, StreamEvent

Spans = list[tuple[StreamEvent, StreamEvent, Callable[[float], object]]]


class Clock(Protocol):
    """A clock that measures time in seconds."""

    def mark(self) -> Any:
        """Mark the current point of the process."""

    def origin(self) -> tuple[Any, float]:
        """Wait for all work launched so far. Return a mark, and the host time at this mark (`time.perf_counter`)."""

    def count(self, begin: Any, end: Any, to: Callable[[float], object]) -> None:
        """Call `to` with the seconds between two marks, immediately or when the clock is settled."""

    def settle(self) -> None:
        """Count all collected spans."""


class HostClock:
    """The host's clock."""

    def mark(self) -> float:
        """Return the current time in seconds."""
        return time.perf_counter()

    def origin(self) -> tuple[float, float]:
        """Return a mark and the corresponding host time."""
        now = time.perf_counter()
        return now, now

    def count(self, begin: float, end: float, to: Callable[[float], object]) -> None:
        """Call `to` with the seconds immediately."""
        to(end - begin)

    def settle(self) -> None:
        """No-op, because spans are counted immediately."""


class DeviceClock:
    """The clock of a stream.

    The measured time includes time in which the stream waits, but not concurrent work of the host.

    Parameters
    ----------
    accelerator, stream
        The device and the stream of the process's computation.
    spans
        Spans that are not counted yet. Clocks of one device share this list.
    """

    _MOST = 4096

    def __init__(self, accelerator: Accelerator, stream: int, spans: Spans) -> None:
        self._accelerator, self._stream, self._spans = accelerator, stream, spans

    def mark(self) -> StreamEvent:
        """Record an event after all work enqueued on the stream so far."""
        return self._accelerator.mark(self._stream)

    def origin(self) -> tuple[StreamEvent, float]:
        """Wait for a mark on the stream. Return the mark and the host time at which the device reached it."""
        event = self.mark()
        event.wait()
        return event, time.perf_counter()

    def count(self, begin: StreamEvent, end: StreamEvent, to: Callable[[float], object]) -> None:
        """Store the span until the clock is settled or too many spans are stored."""
        self._spans.append((begin, end, to))
        if len(self._spans) > self._MOST:  # in case the caller never settles the clock
            self.settle()

    def settle(self) -> None:
        """Wait until all spans have ended, and count the spans."""
        for begin, end, to in self._spans:
            end.wait()
            to(end.since(begin))
        self._spans.clear()
