"""The request to stop: a file that the job script makes ahead of the job's limit, or when the job is preempted."""

import time
from collections.abc import Callable
from pathlib import Path

_EVERY = 1.0
"""Seconds between two looks: each is a question to a file system that others share."""


class StopRequest:
    """Whether the run was told to stop.

    Parameters
    ----------
    path
        The file that says so.
    clock
        Gives seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._next = clock()
        self._told = False

    def __call__(self) -> bool:
        """Look, unless the last look was just now; who was told once stays told."""
        if not self._told and self._clock() >= self._next:
            self._told = self._path.exists()
            self._next = self._clock() + _EVERY
        return self._told


def never() -> bool:
    """The answer of a rank that does not look: the first one does, for all."""
    return False
