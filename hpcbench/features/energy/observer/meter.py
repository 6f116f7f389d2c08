"""Energy meter of one rank, which reads counters at the start, at the end and during the counted steps."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpcbench.features.energy.observer.counters import Counter, NoCounterError

EACH = 10.0
"""Minimum time in seconds between two readings. A counter must not wrap around twice between readings."""
MOST_WATTS = 1000.0
"""Maximum power in watts of a processor or its memory, used to detect missed counter wraparounds."""


@dataclass
class Metered:
    """A counter and the energy in joules that it measured while the meter ran."""

    counter: Counter
    joules: float = 0.0
    problem: str = ""
    """Reason why the counter is unusable, or an empty string."""
    _last: tuple[float, float] | None = field(default=None, repr=False)

    def begin(self, now: float) -> None:
        """Start counting."""
        self._last = None
        self._read(now)

    def advance(self, now: float) -> None:
        """Add the energy since the last reading."""
        self._read(now)

    def _read(self, now: float) -> None:
        if self.problem:
            return
        try:
            value = self.counter.read()
        except NoCounterError as error:
            self.problem = str(error)
            return
        if self._last is not None:
            self._add(value, now, *self._last)
        self._last = value, now

    def _add(self, value: float, now: float, before: float, since: float) -> None:
        gained, span = value - before, self.counter.span
        if span is not None and (now - since) * MOST_WATTS >= span:
            self.problem = (
                f"the counter may have wrapped around unnoticed: its range is {span:.0f} J, but the counter was "
                f"not read for {now - since:.0f} s"
            )
        elif gained < 0 and span is None:
            self.problem = f"the counter decreased from {before:.0f} J to {value:.0f} J"
        else:
            self.joules += gained if gained >= 0 or span is None else gained + span


class Meter:
    """Meter of the energy counters of one rank.

    Parameters
    ----------
    counters
        Counters read by this rank. Exactly one rank reads each counter of a host.
    clock
        Function that returns the time in seconds.

    Attributes
    ----------
    metered : list of Metered
        The counters and their measured energy.
    seconds : float
        Time in seconds during which the meter ran.
    """

    def __init__(self, counters: Sequence[Counter], clock: Callable[[], float] = time.perf_counter) -> None:
        self.metered = [Metered(counter) for counter in counters]
        self.seconds = 0.0
        self._clock = clock
        self._running: float | None = None

    def resume(self) -> None:
        """Start the meter before a counted step, if the meter is not running."""
        if self._running is None:
            self._running = now = self._clock()
            for metered in self.metered:
                metered.begin(now)

    def tick(self) -> None:
        """Read the counters if the last reading is at least `EACH` seconds old.

        This method is called after a counted step that is directly followed by another step.
        """
        if self._running is not None and self._clock() - self._running >= EACH:
            self._running = self._count(self._running)

    def pause(self) -> None:
        """Stop the meter before an evaluation or a checkpoint, or at the end of the run."""
        if self._running is not None:
            self._count(self._running)
            self._running = None

    def _count(self, since: float) -> float:
        now = self._clock()
        for metered in self.metered:
            metered.advance(now)
        self.seconds += now - since
        return now
