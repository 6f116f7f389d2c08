"""Times calls in such a way that noise of the machine affects all in the same way."""

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
        """The fastest time, which other programs on the machine disturbed least."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The median time, which one can expect."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Subject:
    """The subject of a measurement: a name, and calls that can be repeated."""

    name: str
    calls: Mapping[str, Call]
    """Calls by the name of the operation."""


def time_in_turns(
    subjects: Sequence[Subject],
    repeats: int,
    *,
    ready: Call = lambda: None,
    wait: Call = lambda: None,
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> list[dict[str, Times]]:
    """Seconds of every call of every subject.

    All subjects have a turn before any has its next one, so that a slow moment of the machine affects all of them. The
    first turn is not counted, because it meets cold caches and memory that was never touched.

    Parameters
    ----------
    subjects
        The subjects to measure.
    repeats
        Number of turns that count, at least 1.
    ready
        Called before each call, and not counted. It restores values and waits for other ranks.
    wait
        Waits until the device has done the work of a call. It is counted as part of the call.
    progress
        Called before each subject's turn with the number of turns done, the number of all turns, and the subject's
        name.

    Returns
    -------
    list of dict
        The times of each call, for each subject.
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
