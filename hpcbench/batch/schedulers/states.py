"""States of jobs and runs, and what a scheduler's word may change in them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class State(str, Enum):
    """Of a job or a run."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    """Stopped for a while by its scheduler; it goes on by itself."""
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    """Told to, ahead of a limit; it would go on from its checkpoint."""
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NODE_FAILED = "node failure"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    LOST = "lost"
    """It ended, or never started, without a word: killed, or the machine went down."""
    UNKNOWN = "unknown"
    """Nobody can say; neither an end nor a success."""

    @property
    def alive(self) -> bool:
        """Whether it may still come to an end by itself."""
        return self in (State.PENDING, State.RUNNING, State.SUSPENDED)


@dataclass(frozen=True)
class Word:
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
