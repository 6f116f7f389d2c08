"""The request to stop: a file that the job script writes before the job's limit, or when the job is preempted."""

import time
from collections.abc import Callable
from pathlib import Path

_EVERY = 1.0
"""Seconds between two checks. Each check queries a file system that others share."""


class StopRequest:
    """Whether the run was asked to stop.

    Parameters
    ----------
    path
        The file of the request.
    clock
        A function that gives the time in seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._next = clock()
        self._told = False

    def __call__(self) -> bool:
        """Return whether the run was asked to stop.

        The file is checked unless it was checked a moment ago. Once true, the result stays true.
        """
        if not self._told and self._clock() >= self._next:
            self._told = self._path.exists()
            self._next = self._clock() + _EVERY
        return self._told


def never() -> bool:
    """Return False: only the first rank looks for the request."""
    return False
