"""Meters the steps of a run on this rank: reads its counters at their edges, and often enough in between."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpcbench.features.energy.observer.counters import Counter, NoCounterError

EACH = 10.0
"""Seconds between two readings, at least: a counter that begins anew must not do it twice in between."""
MOST_WATTS = 1000.0
"""That anything with a counter that begins anew may take: a processor, or its memory."""


@dataclass
class Metered:
    """What one counter has counted while the meter ran."""

    counter: Counter
    joules: float = 0.0
    problem: str = ""
    """Why its joules are not to be used; empty where they are."""
    _last: tuple[float, float] | None = field(default=None, repr=False)

    def begin(self, now: float) -> None:
        """Count from here on."""
        self._last = None
        self._advance(now)

    def go_on(self, now: float) -> None:
        """Count to here."""
        self._advance(now)

    def _advance(self, now: float) -> None:
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
                f"may have begun anew unseen: {now - since:.0f} s lay between two readings, and it holds {span:.0f} J"
            )
        elif gained < 0 and span is None:
            self.problem = f"went back from {before:.0f} J to {value:.0f} J"
        else:
            self.joules += gained if gained >= 0 or span is None else gained + span


class Meter:
    """The counters of one rank.

    Parameters
    ----------
    counters
        That this rank reads; those of its host that no other rank does.
    clock
        Seconds.

    Attributes
    ----------
    metered : list of Metered
        One a counter.
    seconds : float
        For which it ran.
    """

    def __init__(self, counters: Sequence[Counter], clock: Callable[[], float] = time.perf_counter) -> None:
        self.metered = [Metered(counter) for counter in counters]
        self.seconds = 0.0
        self._clock = clock
        self._running: float | None = None

    def resume(self) -> None:
        """Return a step that counts is about to begin."""
        if self._running is None:
            self._running = now = self._clock()
            for one in self.metered:
                one.begin(now)

    def tick(self) -> None:
        """Such a step is over, and the next one begins at once."""
        if self._running is not None and self._clock() - self._running >= EACH:
            self._running = self._count(self._running)

    def pause(self) -> None:
        """Return what follows is no step: an evaluation, a checkpoint, or the end."""
        if self._running is not None:
            self._count(self._running)
            self._running = None

    def _count(self, since: float) -> float:
        now = self._clock()
        for one in self.metered:
            one.go_on(now)
        self.seconds += now - since
        return now
