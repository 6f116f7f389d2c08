"""States of jobs and runs, and the exit statuses that tell them."""

from dataclasses import dataclass

from hpcbench.contract.str_enum import StrEnum


class State(StrEnum):
    """State of a job or a run."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    """Stopped for a while by its scheduler; it goes on by itself."""
    COMPLETED = "completed"
    NAN = "nan"
    """The loss stopped being a number. Only a run's."""
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
    INCOMPLETE = "incomplete"
    """A log without its end, and nobody to ask. Only a run's."""
    UNKNOWN = "unknown"
    """Nobody can say; neither an end nor a success."""

    @property
    def alive(self) -> bool:
        """Whether it may still come to an end by itself."""
        return self in OPEN


OPEN = frozenset({State.PENDING, State.RUNNING, State.SUSPENDED})
BAD = frozenset(State) - OPEN - {State.COMPLETED}
"""The run is over, or nobody knows, and it is no measurement: `report` exits with 1."""
DONE_TO_IT = frozenset(
    {State.TIMED_OUT, State.OUT_OF_MEMORY, State.NODE_FAILED, State.PREEMPTED, State.CANCELLED},
)
"""What a scheduler does to a job, whose script and runs then end with some status."""

STOPPED_EXIT = 75
"""Exit status of a worker that stopped on request and left a checkpoint (``EX_TEMPFAIL``: to be tried again)."""
NO_ROOM_EXIT = 74
"""Exit status of a job script that cannot write to its directory (``EX_IOERR``)."""
OVERTIME_EXIT = 124
"""Exit status of a run that met its own time limit, as ``timeout`` says it."""
ENDED_BY_SIGNAL = (129, 130, 137, 140, 143)
"""What a shell says of SIGHUP, SIGINT, SIGKILL, SIGUSR2 (LSF's at the run limit) and SIGTERM."""


@dataclass(frozen=True)
class Job:
    """The job that a run belongs to."""

    id: str
    state: State
    exit: int | None = None
    """Exit status of its script, by its own mark."""
    reason: str = ""
    """In its scheduler's words."""
    attempt: int = 1
    """The attempt that is under way, or was the last."""


@dataclass(frozen=True)
class Verdict:
    """A run's state; the reason is empty where the state says it all."""

    state: State
    reason: str = ""
    where: str | None = None
    """``file:line`` that the reason was read from."""

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.state}{reason}" + (f" ({self.where})" if self.where else "")
