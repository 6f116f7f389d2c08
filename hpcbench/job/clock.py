"""Clock that measures a job's elapsed time."""

import os
import time
from pathlib import Path

GAP = 10.0
"""Maximum seconds between two successive readings. After a longer gap, the job is assumed to have been suspended."""


class JobClock:
    """Clock that stops while the scheduler suspends the job. Suspended time does not count toward the walltime.

    Parameters
    ----------
    used
        Seconds since the start of the job.
    """

    def __init__(self, used: float) -> None:
        self._used = used
        self._last = time.monotonic()

    def read(self, *, watched: bool = True) -> float:
        """Return the elapsed time in seconds.

        Parameters
        ----------
        watched
            Whether the clock is read several times per second, so that larger gaps count as suspensions.
        """
        now = time.monotonic()
        if not watched or now - self._last < GAP:
            self._used += now - self._last
        self._last = now
        return self._used


def measure_age(start_ticks: int) -> float:
    """Return the age of a process in seconds.

    Parameters
    ----------
    start_ticks
        Start time of the process, in clock ticks since boot.
    """
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    return max(0.0, uptime - start_ticks / os.sysconf("SC_CLK_TCK"))
