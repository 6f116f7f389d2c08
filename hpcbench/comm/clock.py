"""The time between two places in what a process does.

A GPU does later what it is told now: the host's clock says when it was told, the events of its stream when it was done.
How long that took is known when the device has come there, and nobody is to wait for it before a step is over; so spans
are handed in, and counted when the clock is settled.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from hpcbench.comm.accelerator import Accelerator, Event

Spans = list[tuple[Event, Event, Callable[[float], object]]]


class Clock(Protocol):
    """Tells seconds."""

    def mark(self) -> Any:
        """The place where the process is now."""

    def origin(self) -> tuple[Any, float]:
        """A place, and the host's time there: `time.perf_counter`'s. What was asked for before is waited for."""

    def count(self, begin: Any, end: Any, to: Callable[[float], object]) -> None:
        """Give the seconds between two places to `to`, when the clock is settled at the latest."""

    def settle(self) -> None:
        """Count all that was handed in."""


class HostClock:
    """The processor's."""

    def mark(self) -> float:
        return time.perf_counter()

    def origin(self) -> tuple[float, float]:
        now = time.perf_counter()
        return now, now

    def count(self, begin: float, end: float, to: Callable[[float], object]) -> None:
        to(end - begin)

    def settle(self) -> None:
        pass


class DeviceClock:
    """A stream's: what the stream waits for counts, what the host does meanwhile does not.

    Parameters
    ----------
    accelerator, stream
        The device, and the stream on which the process computes.
    spans
        That are not counted yet; clocks of one device share them.
    """

    _MOST = 4096

    def __init__(self, accelerator: Accelerator, stream: int, spans: Spans) -> None:
        self._accelerator, self._stream, self._spans = accelerator, stream, spans

    def mark(self) -> Event:
        return self._accelerator.mark(self._stream)

    def origin(self) -> tuple[Event, float]:
        event = self.mark()
        event.wait()
        return event, time.perf_counter()

    def count(self, begin: Event, end: Event, to: Callable[[float], object]) -> None:
        self._spans.append((begin, end, to))
        if len(self._spans) > self._MOST:  # nobody settles
            self.settle()

    def settle(self) -> None:
        for begin, end, to in self._spans:
            end.wait()
            to(end.since(begin))
        self._spans.clear()
