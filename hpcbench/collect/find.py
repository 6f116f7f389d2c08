"""Where a submission lies, and how its jobs stand."""

import sys
from collections.abc import Mapping
from pathlib import Path

from hpcbench.batch.find import find_root
from hpcbench.batch.track import track
from hpcbench.collect.state import JobState

_STATES: dict[str, JobState] = {
    "pending": "pending",
    "running": "running",
    "completed": "ended",
    "failed": "ended",
    "cancelled": "cancelled",
    "lost": "lost",
}


def resolve(path: Path) -> Path:
    """The submission that `path` names: itself, or the newest of those numbered in it, which is told on stderr.

    Raises
    ------
    UserError
        There is none.
    """
    root = find_root(path)
    if root != path:
        print(f"hpcbench: {root} is the newest in {path}", file=sys.stderr)
    return root


def job_states(root: Path) -> Mapping[str, JobState]:
    """State of each job by its id, as far as its marks and its scheduler tell.

    Raises
    ------
    UserError
        The submission's plan is missing or damaged.
    """
    return {job: _STATES.get(status.state.value, "unknown") for job, status in track(root).jobs.items()}
