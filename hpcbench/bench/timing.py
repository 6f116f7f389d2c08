"""Timing of calls in interleaved turns, so that machine noise affects all measured items equally."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Call = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Times of one call in seconds, measured several times."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """Fastest time, least affected by other programs on the machine."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """Median time."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Subject:
    """A measured item: a name, and calls that can be repeated."""

    name: str
    calls: Mapping[str, Call]
    """Calls, keyed by the name of the operation."""


def time_in_turns(
    subjects: Sequence[Subject],
    repeats: int,
    *,
    ready: Call = lambda: None,
    wait: Call = lambda: None,
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> list[dict[str, Times]]:
    """Time every call of every item.

    Every item completes a turn before the next turn starts, so machine noise affects all items equally. The first
    turn is not counted, because caches are cold and memory is untouched.

    Parameters
    ----------
    subjects
        The items to measure.
    repeats
        Number of timed turns after the warm-up turn, at least 1.
    ready
        Untimed function that runs before each call, to restore values and wait for other ranks.
    wait
        Function that waits for the device. The time that it takes counts as part of the call.
    progress
        Function that is called before each turn with the number of finished turns, the total number of turns, and the
        item's name.

    Returns
    -------
    list of dict
        For each item, the times of each call in seconds.
    """
    seconds: list[dict[str, list[float]]] = [{name: [] for name in subject.calls} for subject in subjects]
    total = (repeats + 1) * len(subjects)
    for turn in range(repeats + 1):
        for k, subject in enumerate(subjects):
            progress(turn * len(subjects) + k, total, subject.name)
            for name, call in subject.calls.items():
                ready()
                wait()
                start = time.perf_counter()
                call()
                wait()
                taken = time.perf_counter() - start
                if turn:
                    seconds[k][name].append(taken)
    progress(total, total, "")
    return [{name: Times(tuple(taken)) for name, taken in calls.items()} for calls in seconds]
