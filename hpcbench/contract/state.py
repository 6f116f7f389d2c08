"""States of jobs and runs, and the exit statuses that hpcbench interprets."""

from dataclasses import dataclass

from hpcbench.contract.str_enum import StrEnum


class State(StrEnum):
    """State of a job or a run."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    """The scheduler suspended the job, and will resume it."""
    COMPLETED = "completed"
    NAN = "nan"
    """The loss became NaN or infinite. Only runs have this state."""
    FAILED = "failed"
    STOPPED = "stopped"
    """The run stopped on request before a time limit. The run can continue from its checkpoint."""
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NODE_FAILED = "node failure"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The job or run ended without a message.

    For example, the job was killed, was never started, or lost its machine.
    """
    INCOMPLETE = "incomplete"
    """The log contains no end event, and no scheduler can be queried. Only runs have this state."""
    UNKNOWN = "unknown"
    """The state cannot be determined. A job or run in this state counts neither as ended nor as successful."""

    @property
    def alive(self) -> bool:
        """Whether the job or run has not ended."""
        return self in OPEN


OPEN = frozenset({State.PENDING, State.RUNNING, State.SUSPENDED})
BAD = frozenset(State) - OPEN - {State.COMPLETED}
"""States of a run without a valid measurement. `report` then exits with 1."""
DONE_TO_IT = frozenset(
    {State.TIMED_OUT, State.OUT_OF_MEMORY, State.NODE_FAILED, State.PREEMPTED, State.CANCELLED},
)
"""States that a scheduler imposes on a job, whatever the exit statuses of its script and its runs."""

STOPPED_EXIT = 75
"""Exit status of a worker that stopped on request and left a checkpoint (``EX_TEMPFAIL``: try again)."""
NO_ROOM_EXIT = 74
"""Exit status of a job script that cannot write to its directory (``EX_IOERR``)."""
OVERTIME_EXIT = 124
"""Exit status of a run that reached its own time limit (the same status as for ``timeout``)."""
ENDED_BY_SIGNAL = (129, 130, 137, 140, 143)
"""Exit statuses in a shell after SIGHUP, SIGINT, SIGKILL, SIGUSR2 (sent by LSF at the run limit) and SIGTERM."""


@dataclass(frozen=True)
class JobSummary:
    """The job that a run belongs to."""

    id: str
    state: State
    exit: int | None = None
    """Exit status of the script, from its status file."""
    reason: str = ""
    """The scheduler's reason for the state."""
    attempt: int = 1
    """Number of the current or last attempt."""


@dataclass(frozen=True)
class ResolvedState:
    """The state of a run. The reason is empty if the state needs no explanation."""

    state: State
    reason: str = ""
    where: str | None = None
    """``file:line`` of the reason."""

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.state}{reason}" + (f" ({self.where})" if self.where else "")
