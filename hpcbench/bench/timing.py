"""How long calls take, measured so that a noisy machine treats all alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Call = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Seconds of one call, measured several times."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The fastest, which other programs on the machine disturbed least."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """What one may expect."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Subject:
    """What is measured: a name, and calls that can be repeated."""

    name: str
    calls: Mapping[str, Call]
    """By the name of the operation."""


def time_in_turns(
    subjects: Sequence[Subject],
    repeats: int,
    *,
    ready: Call = lambda: None,
    wait: Call = lambda: None,
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> list[dict[str, Times]]:
    """Seconds of every call of every subject.

    All subjects have their turn before one has its next, so that a slow moment of the machine strikes all of them. A
    first turn is not counted: it meets cold caches and memory that was never touched.

    Parameters
    ----------
    subjects
        What to measure.
    repeats
        Turns that count, at least 1.
    ready
        Called before each call, not counted: puts values back, waits for other ranks.
    wait
        Waits until the device has done what a call asked of it; counted as part of the call.
    progress
        Called before each subject's turn with the turns done, all turns, and the subject's name.

    Returns
    -------
    list of dict
        For each subject the times of each of its calls.
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
