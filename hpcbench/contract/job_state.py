"""Resolution of job states from status files and scheduler answers.

A status file contains how the job ended. If a status file is missing, the scheduler's answers may explain why.
"""

from dataclasses import dataclass, replace

from hpcbench.contract.mark import Mark
from hpcbench.contract.reason import describe_exit
from hpcbench.contract.state import DONE_TO_IT, ENDED_BY_SIGNAL, STOPPED_EXIT, JobSummary, ResolvedState, State
from hpcbench.contract.times import parse_time

GRACE = 300.0
"""Maximum time in seconds that a job may be missing from scheduler answers.

Accounting is delayed, and requeued jobs are not listed immediately.
"""
_SKEW = 60.0
"""Maximum lag of a compute node's clock behind the login node's clock, in seconds."""
_SLOW_REASON = 60.0
"""Seconds after the end of a script during which the scheduler may still report why the script ended."""
_SLOW_FILES = 30.0
"""Maximum delay in seconds until a compute node's status file is visible on the login node."""


@dataclass(frozen=True)
class SubmissionRecord:
    """The most recent submission of a job to its scheduler."""

    time: str
    """Time of the submission in UTC, ISO 8601."""
    begun: int = 0
    """Number of attempts before this submission. Status files of these attempts no longer count."""
    answered: bool = True
    """Whether the scheduler returned the job ID."""
    cancelled: str | None = None
    """Time at which hpcbench cancelled the job, or None if it has not cancelled the job."""


@dataclass(frozen=True)
class SchedulerAnswer:
    """The scheduler's last answer about a job."""

    state: State
    reason: str = ""
    """The scheduler's reason for the state."""
    exit: int | None = None
    """Exit status of the script, if the scheduler reports it."""
    restarts: int | None = None
    """Number of restarts by the scheduler, or None if the scheduler does not report it."""
    since: float = 0.0
    """Time at which the scheduler first reported the state, in seconds since 1970."""
    absent: float | None = None
    """Time of the first answer without the job, in seconds since 1970, or None if the last answer contained the job."""
    ended: int = 0
    """Attempt that, according to its status file, had ended when the scheduler was queried, or 0 if there is none."""


@dataclass(frozen=True)
class Status:
    """State of a job or run, with reason and times."""

    state: State
    reason: str = ""
    start: str | None = None
    end: str | None = None
    attempt: int = 1
    """Number of the current or last attempt."""
    exit: int | None = None
    """Exit status from the status file."""
    where: str | None = None
    """Location of the message with the reason, as ``file:line``."""

    def job(self, id: str) -> JobSummary:
        """Return a summary of job `id`, which is used to resolve the states of its runs."""
        return JobSummary(id, self.state, self.exit, self.reason, self.attempt)


def make_run_status(verdict: ResolvedState, mark: Mark | None, job: Status) -> Status:
    """Return a run's state with the times from its status file.

    If the status file does not contain the end, the run is assumed to have ended with its job.
    """
    status = Status(verdict.state, verdict.reason, where=verdict.where)
    if mark is None or verdict.state is State.PENDING:
        return status
    end = mark.end or (None if verdict.state.alive else job.end)
    return replace(status, start=mark.start, end=end, attempt=mark.attempt, exit=mark.exit)


def resolve_job_state(
    mark: Mark | None,
    record: SubmissionRecord | None,
    answer: SchedulerAnswer | None,
    *,
    requeue: bool,
    silent: str | None,
    clock: float,
) -> Status:
    """Resolve the state of a submitted job.

    Parameters
    ----------
    mark
        Status file of the job. The file is ignored if it was written by an attempt before the last submission.
    record
        Last submission of the job, or None if the script was started manually.
    answer
        Last scheduler answer about the job, or None before the first answer.
    requeue
        Whether the job may return to its queue.
    silent
        Why the scheduler query failed, or None if it succeeded.
    clock
        Current time in seconds since 1970.
    """
    begun = record.begun if record else 0
    current = mark if mark is not None and mark.attempt > begun else None
    if current is None:
        return replace(_judge(None, begun, record, answer, requeue, silent, clock), attempt=begun + 1)
    times, ended = current.attempt - begun, current.state == "ended"
    back = _put_back(current, times, answer, requeue, clock) if ended else None
    status = back or _judge(current, begun, record, answer, requeue, silent, clock)
    ended = ended and back is None
    attempt = current.attempt + (back is not None or _waits_again(current, times, answer))
    return replace(
        status,
        start=current.start,
        end=current.end if ended else None,
        attempt=attempt,
        exit=current.exit if ended else None,
    )


def _judge(
    mark: Mark | None,
    begun: int,
    record: SubmissionRecord | None,
    answer: SchedulerAnswer | None,
    requeue: bool,
    silent: str | None,
    clock: float,
) -> Status:
    if mark is not None and mark.state == "ended":
        return _clears_up(mark, answer, silent, clock) or _ended(mark, record, answer)
    if record is None:
        return Status(State.RUNNING, "according to its status file; no scheduler was queried")
    if answer is None and not record.answered and mark is None:
        return Status(State.UNKNOWN, "submitted, but the scheduler's answer is missing: run `hpcbench submit` again")
    if silent is not None and (answer is None or answer.state.alive):
        last = f"; last seen {answer.state}" if answer else ""
        return Status(State.UNKNOWN, f"{silent}{last}")
    if record.cancelled and (answer is None or (answer.state.alive and answer.absent is not None)):
        return Status(State.CANCELLED, "no longer in its queue, and its status file records no end")
    if record.cancelled and answer is not None and _ended_by_us(answer, record.cancelled):
        return Status(State.CANCELLED, answer.reason)
    again = mark is not None and _waits_again(mark, mark.attempt - begun, answer)
    put_back = f"put back into its queue after attempt {mark.attempt}" if mark and again else ""
    if answer is None:
        if clock - (_seconds(record.time) or 0.0) < GRACE:
            waits = Status(State.PENDING, put_back or "submitted, but not listed by the scheduler yet")
            return Status(State.RUNNING) if mark is not None and not put_back else waits
        return Status(State.LOST, "not listed by the scheduler, and its status file records no end")
    if answer.state.alive:
        if answer.absent is None:
            return Status(answer.state, "; ".join(part for part in (put_back, answer.reason) if part))
        if clock - answer.absent > GRACE:
            return Status(
                State.LOST,
                f"no longer in its queue (last state: {answer.state.value}), and its status file records no end",
            )
        return Status(
            answer.state,
            f"according to the last list of the scheduler with this job; lost if not listed again within {GRACE:.0f} s",
        )
    lately = clock - answer.since
    if answer.state is State.COMPLETED:
        if lately < _SLOW_FILES:
            return Status(State.RUNNING, "the scheduler reports completed, but the status file records no end yet")
        return Status(State.UNKNOWN, "the scheduler reports completed, but the status file records no end")
    if answer.state is State.PREEMPTED and requeue and lately < GRACE:
        return Status(State.PENDING, f"preempted; {put_back or 'may return to its queue'}")
    return Status(answer.state, answer.reason or describe_exit(answer.exit))


def _put_back(mark: Mark, times: int, answer: SchedulerAnswer | None, requeue: bool, clock: float) -> Status | None:
    """Return the status of a job that restarts after its `times`-th attempt, or None if it does not restart."""
    if mark.exit == 0 or answer is None or answer.absent is not None:
        return None
    later = answer.ended == mark.attempt
    if answer.state.alive and ((answer.restarts or 0) >= times or (later and answer.state is State.PENDING)):
        event = f"put back into its queue after attempt {mark.attempt}"
        return Status(answer.state, "; ".join(part for part in (event, answer.reason) if part))
    if later and answer.state is State.PREEMPTED and requeue and clock - answer.since < GRACE:
        return Status(State.PENDING, "preempted; may return to its queue")
    return None


def _clears_up(mark: Mark, answer: SchedulerAnswer | None, silent: str | None, clock: float) -> Status | None:
    """Return the status of a job that ended so recently that its scheduler may still report the reason, or None."""
    end = _seconds(mark.end)
    if not mark.exit or end is None or abs(clock - end) > _SLOW_REASON:
        return None
    if answer is None or not answer.state.alive or answer.absent is not None or silent is not None:
        return None
    return Status(
        State.RUNNING, f"its script has ended ({describe_exit(mark.exit)}); waiting for the scheduler's reason"
    )


def _waits_again(mark: Mark, times: int, answer: SchedulerAnswer | None) -> bool:
    """Return whether the `times`-th attempt is over and the job will run again."""
    if mark.state == "running" and answer is not None and answer.state.alive:
        later = answer.state is State.PENDING and bool(mark.start) and answer.since > (_seconds(mark.start) or 0.0)
        return later or (answer.restarts or 0) >= times
    return mark.state == "requeued"


def _ended(mark: Mark, record: SubmissionRecord | None, answer: SchedulerAnswer | None) -> Status:
    if mark.exit == 0:
        return Status(State.COMPLETED)
    if mark.exit is None:
        return Status(State.UNKNOWN, "its status file contains no exit status")
    if record is not None and record.cancelled and _after(mark, record.cancelled):
        return Status(State.CANCELLED)
    if answer is not None and answer.state in DONE_TO_IT:
        return Status(answer.state, answer.reason)
    if mark.why:
        return Status(State.FAILED, mark.why)
    if mark.exit == STOPPED_EXIT:
        return Status(State.STOPPED, "stopped at a time limit: continue the job with `hpcbench retry`")
    return Status(State.FAILED, describe_exit(mark.exit))


def _ended_by_us(answer: SchedulerAnswer, cancelled: str) -> bool:
    """Return whether a job without a status file was ended by hpcbench's cancellation.

    Some schedulers report such a job as failed.
    """
    return answer.state in (State.FAILED, State.LOST) and answer.since >= (_seconds(cancelled) or 0.0)


def _after(mark: Mark, cancelled: str) -> bool:
    """Return whether the job ended after its cancellation, allowing for clock skew between machines."""
    end, cancel_time = _seconds(mark.end), _seconds(cancelled)
    slack = _SKEW if mark.exit in ENDED_BY_SIGNAL else 0.0
    return end is not None and cancel_time is not None and end + slack >= cancel_time


def _seconds(time: str | None) -> float | None:
    parsed = parse_time(time)
    return parsed.timestamp() if parsed else None
