"""Job status in the scheduler."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hpcbench.contract.state import State


@dataclass(frozen=True)
class JobStatus:
    """Status of a job as reported by its scheduler."""

    state: State
    reason: str = ""
    """Reason given by the scheduler: ``Resources``, ``TIMEOUT``, ``TERM_RUNLIMIT: ...``."""
    exit: int | None = None
    """Exit status of the script, if reported. Above 128 for a signal."""
    start: str | None = None
    """Start time, such as ``2026-11-21T06:30:00Z``."""
    end: str | None = None
    hosts: str = ""
    """Hosts in the scheduler's notation: ``n[1-2]``."""
    restarts: int | None = None
    """Number of restarts by the scheduler, or None if not reported."""
    accounting: Mapping[str, str] = field(default_factory=dict)
    """Waiting time, run time, energy, and similar values, keyed by the scheduler's field names."""


def job_of(id: str) -> str:
    """Return the job id of an array element: ``123`` for ``123_4``, ``123+0`` and ``123[4]``."""
    return re.split(r"[_+\[]", id)[0]


def list_jobs(ids: Iterable[str]) -> list[str]:
    """Return the unique job ids of these array elements."""
    return list(dict.fromkeys(map(job_of, ids)))
