"""Status of a job in its scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcbench.contract.state import State


@dataclass(frozen=True)
class JobStatus:
    """Status of one job in its scheduler."""

    state: State
    reason: str = ""
    """Reason in the scheduler's words: ``Resources``, ``TIMEOUT``, ``TERM_RUNLIMIT: ...``."""
    exit: int | None = None
    """Exit status of the script if the scheduler reports it; above 128 for a signal."""
    start: str | None = None
    """``2026-11-21T06:30:00Z``"""
    end: str | None = None
    hosts: str = ""
    """Hosts in the scheduler's notation: ``n[1-2]``."""
    restarts: int | None = None
    """Number of times the scheduler restarted it; None if it does not report that."""
    accounting: Mapping[str, str] = field(default_factory=dict)
    """Wait, run time, energy and the like, by the scheduler's own names."""
