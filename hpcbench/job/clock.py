"""Clock of a job: the time that it has used."""

import os
import time
from pathlib import Path

GAP = 10.0
"""Seconds between two successive readings above which the job is assumed to have been suspended in between."""


class JobClock:
    """Clock that stands still while the scheduler suspends the job. Schedulers do not charge a job for that time.

    Parameters
    ----------
    used
        Seconds since the start of the job.
    """

    def __init__(self, used: float) -> None:
        self._used = used
        self._last = time.monotonic()

    def read(self, *, watched: bool = True) -> float:
        """Return the seconds that the job has used.

        Parameters
        ----------
        watched
            Whether the last reading was a fraction of a second ago, except for suspensions.
        """
        now = time.monotonic()
        if not watched or now - self._last < GAP:
            self._used += now - self._last
        self._last = now
        return self._used


def measure_age(start_ticks: int) -> float:
    """Return the seconds since a process started.

    Parameters
    ----------
    start_ticks
        Its start, in clock ticks since the machine started.
    """
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    return max(0.0, uptime - start_ticks / os.sysconf("SC_CLK_TCK"))
