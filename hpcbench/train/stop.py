"""Stop requests. The job script writes a file before the time limit, or when the job is preempted."""

import time
from collections.abc import Callable
from pathlib import Path

_EVERY = 1.0
"""Seconds between two checks. Each check queries a shared file system."""


class StopRequest:
    """Callable that returns whether the run was asked to stop.

    Parameters
    ----------
    path
        File that signals the request.
    clock
        Function that returns the time in seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._next = clock()
        self._told = False

    def __call__(self) -> bool:
        """Return whether the run was asked to stop.

        The file is checked at most once per second. Once the result is True, it stays True.
        """
        if not self._told and self._clock() >= self._next:
            self._told = self._path.exists()
            self._next = self._clock() + _EVERY
        return self._told


def never() -> bool:
    """Return False. Ranks other than the first use this function, because only the first rank checks for requests."""
    return False
