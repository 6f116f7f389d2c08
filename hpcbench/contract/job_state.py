"""The judge of jobs: a job's own marks say how it ended, and the scheduler explains why a mark is missing."""

from dataclasses import dataclass, replace

from hpcbench.contract.mark import Mark
from hpcbench.contract.reason import describe_exit
from hpcbench.contract.state import DONE_TO_IT, ENDED_BY_SIGNAL, STOPPED_EXIT, JobSummary, ResolvedState, State
from hpcbench.contract.times import parse_time

GRACE = 300.0
"""Seconds that a job may be missing from every answer.

Accounting lags, and a requeued job is listed nowhere at first.
"""
_SKEW = 60.0
"""Seconds by which the clock of a compute node may be behind a login node's."""
_SLOW_WORDS = 60.0
"""Seconds after the end of a script in which the scheduler may still clean up and tell the reason later."""
_SLOW_FILES = 30.0
"""Seconds that a mark may take to travel from a compute node to the login node."""


@dataclass(frozen=True)
class SubmissionRecord:
    """The last time that a job was given to its scheduler."""

    time: str
    """Time of the handing-in, in UTC, ISO 8601."""
    begun: int = 0
    """Attempts that had begun before. Marks of these attempts do not count any more."""
    answered: bool = True
    """Whether the scheduler's answer is known, with the job's id."""
    cancelled: str | None = None
    """Time at which hpcbench cancelled the job."""


@dataclass(frozen=True)
class SchedulerAnswer:
    """The scheduler's last answer about the job."""

    state: State
    reason: str = ""
    """In the scheduler's words."""
    exit: int | None = None
    """Exit status of the script, if the scheduler gives one."""
    restarts: int | None = None
    """How often the scheduler has started the job again; None if it does not say."""
    since: float = 0.0
    """Time at which the scheduler first gave this state, in seconds since 1970."""
    absent: float | None = None
    """Time since when no answer has named the job; None if the last one did."""
    ended: int = 0
    """The attempt whose mark already told its end when the scheduler was asked; 0 for none."""


@dataclass(frozen=True)
class Status:
    """State of a job or a run, and the reason."""

    state: State
    reason: str = ""
    start: str | None = None
    end: str | None = None
    attempt: int = 1
    """The attempt that is under way, or was the last one."""
    exit: int | None = None
    """Exit status in its own mark."""
    where: str | None = None
    """``file:line`` that the reason was read from."""

    def job(self, id: str) -> JobSummary:
        """Return the job with this state, in the form that the judge of runs takes."""
        return JobSummary(id, self.state, self.exit, self.reason, self.attempt)


def make_run_status(verdict: ResolvedState, mark: Mark | None, job: Status) -> Status:
    """Return a run's state with the times of its mark.

    A run without a mark of its end is taken to have ended with its job.
    """
    found = Status(verdict.state, verdict.reason, where=verdict.where)
    if mark is None or verdict.state is State.PENDING:
        return found
    end = mark.end or (None if verdict.state.alive else job.end)
    return replace(found, start=mark.start, end=end, attempt=mark.attempt, exit=mark.exit)


def resolve_job_state(
    mark: Mark | None,
    handed: SubmissionRecord | None,
    told: SchedulerAnswer | None,
    *,
    requeue: bool,
    silent: str | None,
    clock: float,
) -> Status:
    """State of a job that was handed in.

    Parameters
    ----------
    mark
        The job's own mark. It does not count if an attempt before the last handing-in left it.
    handed
        The job's last handing-in; None if somebody ran the script by hand.
    told
        The scheduler's last answer about the job; None if there was none yet.
    requeue
        Whether the job may go back into its queue.
    silent
        Why the scheduler cannot be asked; None where it answered.
    clock
        Seconds since 1970.
    """
    begun = handed.begun if handed else 0
    own = mark if mark is not None and mark.attempt > begun else None
    if own is None:
        return replace(_judge(None, begun, handed, told, requeue, silent, clock), attempt=begun + 1)
    times, ended = own.attempt - begun, own.state == "ended"
    back = _put_back(own, times, told, requeue, clock) if ended else None
    found = back or _judge(own, begun, handed, told, requeue, silent, clock)
    ended = ended and back is None
    attempt = own.attempt + (back is not None or _waits_again(own, times, told))
    return replace(
        found, start=own.start, end=own.end if ended else None, attempt=attempt, exit=own.exit if ended else None
    )


def _judge(
    mark: Mark | None,
    begun: int,
    handed: SubmissionRecord | None,
    told: SchedulerAnswer | None,
    requeue: bool,
    silent: str | None,
    clock: float,
) -> Status:
    if mark is not None and mark.state == "ended":
        return _clears_up(mark, told, silent, clock) or _ended(mark, handed, told)
    if handed is None:
        return Status(State.RUNNING, "by its own marks; no scheduler was asked")
    if told is None and not handed.answered and mark is None:
        return Status(State.UNKNOWN, "handed in, but the scheduler's answer is missing: run `hpcbench submit` again")
    if silent is not None and (told is None or told.state.alive):
        last = f"; last seen {told.state}" if told else ""
        return Status(State.UNKNOWN, f"{silent}{last}")
    if handed.cancelled and (told is None or (told.state.alive and told.absent is not None)):
        return Status(State.CANCELLED, "no longer in its queue; it left no word of its end")
    if handed.cancelled and told is not None and _ended_by_us(told, handed.cancelled):
        return Status(State.CANCELLED, told.reason)
    again = mark is not None and _waits_again(mark, mark.attempt - begun, told)
    put_back = f"put back into its queue after attempt {mark.attempt}" if mark and again else ""
    if told is None:
        if clock - (_seconds(handed.time) or 0.0) < GRACE:
            waits = Status(State.PENDING, put_back or "handed in, not listed yet")
            return Status(State.RUNNING) if mark is not None and not put_back else waits
        return Status(State.LOST, "its scheduler does not know it, and it left no mark of its end")
    if told.state.alive:
        if told.absent is None:
            return Status(told.state, "; ".join(part for part in (put_back, told.reason) if part))
        if clock - told.absent > GRACE:
            return Status(
                State.LOST, f"gone from its queue, where it was {told.state.value}, without a mark of its end"
            )
        return Status(told.state, f"by the last list that named it; it counts as lost after {GRACE:.0f} s")
    lately = clock - told.since
    if told.state is State.COMPLETED:
        if lately < _SLOW_FILES:
            return Status(State.RUNNING, "its scheduler says completed; its own mark is not here yet")
        return Status(State.UNKNOWN, "its scheduler says completed, but it left no mark of its end")
    if told.state is State.PREEMPTED and requeue and lately < GRACE:
        return Status(State.PENDING, f"preempted; {put_back or 'may go back into its queue'}")
    return Status(told.state, told.reason or describe_exit(told.exit))


def _put_back(mark: Mark, times: int, told: SchedulerAnswer | None, requeue: bool, clock: float) -> Status | None:
    """Status of a job whose scheduler runs it again after its `times`-th end; None if it does not."""
    if mark.exit == 0 or told is None or told.absent is not None:
        return None
    later = told.ended == mark.attempt
    if told.state.alive and ((told.restarts or 0) >= times or (later and told.state is State.PENDING)):
        said = f"put back into its queue after attempt {mark.attempt}"
        return Status(told.state, "; ".join(part for part in (said, told.reason) if part))
    if later and told.state is State.PREEMPTED and requeue and clock - told.since < GRACE:
        return Status(State.PENDING, "preempted; may go back into its queue")
    return None


def _clears_up(mark: Mark, told: SchedulerAnswer | None, silent: str | None, clock: float) -> Status | None:
    """Status of a job that has just ended and whose scheduler may still give the reason; None if not."""
    end = _seconds(mark.end)
    if not mark.exit or end is None or abs(clock - end) > _SLOW_WORDS:
        return None
    if told is None or not told.state.alive or told.absent is not None or silent is not None:
        return None
    return Status(
        State.RUNNING, f"its script has ended ({describe_exit(mark.exit)}); its scheduler may give the reason"
    )


def _waits_again(mark: Mark, times: int, told: SchedulerAnswer | None) -> bool:
    """Whether the `times`-th attempt is over and the job continues, by the attempt's mark or the queue's answer."""
    if mark.state == "running" and told is not None and told.state.alive:
        later = told.state is State.PENDING and bool(mark.start) and told.since > (_seconds(mark.start) or 0.0)
        return later or (told.restarts or 0) >= times
    return mark.state == "requeued"


def _ended(mark: Mark, handed: SubmissionRecord | None, told: SchedulerAnswer | None) -> Status:
    if mark.exit == 0:
        return Status(State.COMPLETED)
    if mark.exit is None:
        return Status(State.UNKNOWN, "its mark of its end lacks the exit status")
    if handed is not None and handed.cancelled and _after(mark, handed.cancelled):
        return Status(State.CANCELLED)
    if told is not None and told.state in DONE_TO_IT:
        return Status(told.state, told.reason)
    if mark.why:
        return Status(State.FAILED, mark.why)
    if mark.exit == STOPPED_EXIT:
        return Status(State.STOPPED, "stopped at a time limit: `hpcbench retry` continues it")
    return Status(State.FAILED, describe_exit(mark.exit))


def _ended_by_us(told: SchedulerAnswer, cancelled: str) -> bool:
    """Whether a job without a mark ended by our cancelling: some schedulers call that a failure like any other."""
    return told.state in (State.FAILED, State.LOST) and told.since >= (_seconds(cancelled) or 0.0)


def _after(mark: Mark, cancelled: str) -> bool:
    """Return whether the job ended after it was cancelled, as far as the clocks of two machines can tell."""
    end, told = _seconds(mark.end), _seconds(cancelled)
    slack = _SKEW if mark.exit in ENDED_BY_SIGNAL else 0.0
    return end is not None and told is not None and end + slack >= told


def _seconds(time: str | None) -> float | None:
    found = parse_time(time)
    return found.timestamp() if found else None
