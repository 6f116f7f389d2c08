"""What a scheduler says of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcbench.contract.state import State


@dataclass(frozen=True)
class JobStatus:
    """What a scheduler says of one job."""

    state: State
    reason: str = ""
    """In the scheduler's own words: ``Resources``, ``TIMEOUT``, ``TERM_RUNLIMIT: ...``."""
    exit: int | None = None
    """Exit status of the script where the scheduler tells one; above 128 for a signal."""
    start: str | None = None
    """``2026-11-21T06:30:00Z``"""
    end: str | None = None
    hosts: str = ""
    """As the scheduler writes them: ``n[1-2]``."""
    restarts: int | None = None
    """How often the scheduler has started it again; None where it does not say."""
    accounting: Mapping[str, str] = field(default_factory=dict)
    """Wait, run time, energy and the like, by the scheduler's own names."""
