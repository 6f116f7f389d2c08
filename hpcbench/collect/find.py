"""Search for a submission and the state of its jobs."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from hpcbench.batch.find_submission import find_root
from hpcbench.batch.schedulers.open_scheduler import open_scheduler
from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.contract.state import JobSummary
from hpcbench.errors import UserError

_SOON = 2.0
"""Seconds to wait after the end of a script before the scheduler is asked why the script ended."""


def resolve(path: Path) -> Path:
    """Return the submission at `path`, or the newest numbered submission in this directory.

    In the second case, the name of the submission is printed on stderr.

    Raises
    ------
    UserError
        `path` contains no submission.
    """
    root = find_root(path)
    if root != path:
        print(f"hpcbench: using {root}, the newest submission in {path}", file=sys.stderr)
    return root


def jobs_of(root: Path) -> Mapping[str, JobSummary]:
    """Return the jobs keyed by ID, with states from status files and the scheduler.

    Raises
    ------
    UserError
        The submission's plan is missing or damaged.
    """
    return _jobs(track(root))


class Jobs:
    """The jobs of a submission, for repeated queries.

    Each query reads the status files. The scheduler is queried less often.

    Parameters
    ----------
    root
        The submission's directory.
    clock
        Function that returns the time in seconds of a monotonic clock.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._next = clock()
        self._took = 0.0
        self._soon = _SOON
        self.silent: str | None = None
        """Reason why the last scheduler query failed, or None if it succeeded."""
        try:
            self._pause = open_scheduler(root).interval
        except UserError:
            self._pause = 30.0

    def __call__(self) -> Mapping[str, JobSummary]:
        """Return the jobs keyed by ID, with their current states."""
        begin = self._clock()
        ask = begin >= self._next
        tracked = track(self._root, ask=ask)
        ending = any(status.state.alive and status.exit is not None for status in tracked.jobs.values())
        now = self._clock()
        if ask:
            self.silent, self._took = tracked.silent, now - begin
            self._next = now + max(self._pause, 5 * self._took)
            self._soon = 2 * self._soon if ending else _SOON
        if ending:  # the scheduler soon reports why a script failed: query it soon, then less often
            self._next = min(self._next, now + max(self._soon, 5 * self._took))
        return _jobs(tracked)


def _jobs(tracked: Tracked) -> Mapping[str, JobSummary]:
    return {job: status.job(job) for job, status in tracked.jobs.items()}
