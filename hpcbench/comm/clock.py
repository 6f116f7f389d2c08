"""Clocks that measure the time between two points in the work of a process.

A GPU works asynchronously: the host's clock shows when work was launched, and the events of a stream show when it was
done. The length of a time span is available only when the device has reached its end. Waiting for that within a step
would slow the step down, so spans are collected, and counted when the clock is settled.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from hpcbench.comm.accelerator import Accelerator, StreamEvent

Spans = list[tuple[StreamEvent, StreamEvent, Callable[[float], object]]]


class Clock(Protocol):
    """A clock that measures seconds."""

    def mark(self) -> Any:
        """Mark the point that the process has reached."""

    def origin(self) -> tuple[Any, float]:
        """Wait for the work launched so far, and return a mark and the host's time at it (`time.perf_counter`)."""

    def count(self, begin: Any, end: Any, to: Callable[[float], object]) -> None:
        """Call `to` with the seconds between two marks, at the latest when the clock is settled."""

    def settle(self) -> None:
        """Count all spans that were collected."""


class HostClock:
    """The clock of the processor."""

    def mark(self) -> float:
        """Return the current time in seconds."""
        return time.perf_counter()

    def origin(self) -> tuple[float, float]:
        """Return a mark, and the host's time at it."""
        now = time.perf_counter()
        return now, now

    def count(self, begin: float, end: float, to: Callable[[float], object]) -> None:
        """Call `to` with the seconds at once."""
        to(end - begin)

    def settle(self) -> None:
        """Do nothing: all spans are counted already."""


class DeviceClock:
    """The clock of a stream. Time that the stream waits counts; what the host does meanwhile does not.

    Parameters
    ----------
    accelerator, stream
        The device, and the stream on which the process computes.
    spans
        Spans that are not counted yet. Clocks of one device share them.
    """

    _MOST = 4096

    def __init__(self, accelerator: Accelerator, stream: int, spans: Spans) -> None:
        self._accelerator, self._stream, self._spans = accelerator, stream, spans

    def mark(self) -> StreamEvent:
        """Record an event after the work that the stream has now."""
        return self._accelerator.mark(self._stream)

    def origin(self) -> tuple[StreamEvent, float]:
        """Wait for a mark on the stream, and return it with the host's time at which the device had reached it."""
        event = self.mark()
        event.wait()
        return event, time.perf_counter()

    def count(self, begin: StreamEvent, end: StreamEvent, to: Callable[[float], object]) -> None:
        """Keep the span until the clock is settled, or until too many spans are waiting."""
        self._spans.append((begin, end, to))
        if len(self._spans) > self._MOST:  # for a caller that never settles the clock
            self.settle()

    def settle(self) -> None:
        """Wait for the ends of all spans, and count them."""
        for begin, end, to in self._spans:
            end.wait()
            to(end.since(begin))
        self._spans.clear()
