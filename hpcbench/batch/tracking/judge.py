"""What became of a job: its own marks say how it ended, the scheduler explains why there is none."""

from dataclasses import dataclass, replace

from hpcbench.batch.files import seconds
from hpcbench.batch.tracking.ledger import SubmittedJob
from hpcbench.batch.tracking.seen import GRACE, Seen
from hpcbench.contract.mark import Mark
from hpcbench.contract.reason import exit_words
from hpcbench.contract.state import DONE_TO_IT, ENDED_BY_SIGNAL, STOPPED_EXIT, Job, State, Verdict

_SKEW = 60.0
"""Seconds by which the clock of a compute node may be behind a login node's."""
_SLOW_WORDS = 60.0
"""Seconds after the end of a script in which its scheduler may still be clearing up, and tell the reason later."""
_SLOW_FILES = 30.0
"""Seconds that a mark may take from a compute node to here."""


@dataclass(frozen=True)
class Status:
    """State of a job or a run, and why."""

    state: State
    reason: str = ""
    start: str | None = None
    end: str | None = None
    attempt: int = 1
    """The attempt that is under way, or was the last."""
    exit: int | None = None
    """Exit status that its own mark tells."""
    where: str | None = None
    """``file:line`` that the reason was read from."""

    def job(self, id: str) -> Job:
        """The job that has this state, as its runs are judged by it."""
        return Job(id, self.state, self.exit, self.reason, self.attempt)


def run_status(verdict: Verdict, mark: Mark | None, job: Status) -> Status:
    """A run's state with the times of its mark; one that left no mark of its end had ended when its job did."""
    found = Status(verdict.state, verdict.reason, where=verdict.where)
    if mark is None or verdict.state is State.PENDING:
        return found
    end = mark.end or (None if verdict.state.alive else job.end)
    return replace(found, start=mark.start, end=end, attempt=mark.attempt, exit=mark.exit)


def judge_job(
    job: str,
    mark: Mark | None,
    handed: SubmittedJob | None,
    seen: Seen | None,
    *,
    requeue: bool,
    silent: str | None,
    clock: float,
) -> Status:
    """State of a job that was handed in.

    Parameters
    ----------
    mark
        Its own mark; of an attempt before the last handing-in it does not count.
    handed
        Its last handing-in; None where somebody ran the script by hand.
    seen
        The last that the scheduler said of it.
    requeue
        Whether it may go back into its queue.
    silent
        Why the scheduler cannot be asked; None where it answered.
    clock
        Seconds since 1970.
    """
    begun = handed.begun[job] if handed else 0
    own = mark if mark is not None and mark.attempt > begun else None
    if own is None:
        return replace(_judge(None, begun, handed, seen, requeue, silent, clock), attempt=begun + 1)
    times, ended = own.attempt - begun, own.state == "ended"
    back = _put_back(own, times, seen, requeue, clock) if ended else None
    found = back or _judge(own, begun, handed, seen, requeue, silent, clock)
    ended = ended and back is None
    attempt = own.attempt + (back is not None or _waits_again(own, times, seen))
    return replace(
        found, start=own.start, end=own.end if ended else None, attempt=attempt, exit=own.exit if ended else None
    )


def _judge(
    mark: Mark | None,
    begun: int,
    handed: SubmittedJob | None,
    seen: Seen | None,
    requeue: bool,
    silent: str | None,
    clock: float,
) -> Status:
    word = seen.word if seen else None
    if mark is not None and mark.state == "ended":
        return _clears_up(mark, seen, silent, clock) or _ended(mark, handed, seen)
    if handed is None:
        return Status(State.RUNNING, "by its marks; nobody else was asked")
    if word is None and handed.id is None and mark is None:
        return Status(State.UNKNOWN, "handed in, but the answer is missing: `hpcbench submit` again settles it")
    if silent is not None and (word is None or word.state.alive):
        last = f"; last seen {word.state.value}" if word else ""
        return Status(State.UNKNOWN, f"{silent}{last}")
    if handed.cancelled and (word is None or seen is None or (word.state.alive and seen.absent is not None)):
        return Status(State.CANCELLED, "no longer in its queue; it left no word of its end")
    again = mark is not None and _waits_again(mark, mark.attempt - begun, seen)
    put_back = f"put back into its queue after attempt {mark.attempt}" if mark and again else ""
    if word is None or seen is None:
        if clock - (seconds(handed.time) or 0.0) < GRACE:
            waits = Status(State.PENDING, put_back or "handed in, not listed yet")
            return Status(State.RUNNING) if mark is not None and not put_back else waits
        return Status(State.LOST, "its scheduler knows nothing of it, and it left no word of its end")
    if word.state.alive:
        if seen.absent is None:
            return Status(word.state, "; ".join(part for part in (put_back, word.reason) if part))
        if clock - seen.absent > GRACE:
            return Status(
                State.LOST, f"gone from its queue, where it was {word.state.value}, without a word of its end"
            )
        return Status(word.state, f"when it was last listed; lost, unless it is listed again within {GRACE:.0f} s")
    lately = clock - seen.since
    if word.state is State.COMPLETED:
        if lately < _SLOW_FILES:
            return Status(State.RUNNING, "its scheduler says completed; its own mark is awaited")
        return Status(State.UNKNOWN, "its scheduler says completed, but it left no mark of its end")
    if word.state is State.PREEMPTED and requeue and lately < GRACE:
        return Status(State.PENDING, f"preempted; {put_back or 'may go back into its queue'}")
    return Status(word.state, word.reason or exit_words(word.exit))


def _put_back(mark: Mark, times: int, seen: Seen | None, requeue: bool, clock: float) -> Status | None:
    """How a job stands that ended, its `times`-th time, but which its scheduler runs again; None where it does not."""
    if mark.exit == 0 or seen is None or seen.absent is not None:
        return None
    word, later = seen.word, seen.ended == mark.attempt
    if word.state.alive and ((word.restarts or 0) >= times or (later and word.state is State.PENDING)):
        said = f"put back into its queue after attempt {mark.attempt}"
        return Status(word.state, "; ".join(part for part in (said, word.reason) if part))
    if later and word.state is State.PREEMPTED and requeue and clock - seen.since < GRACE:
        return Status(State.PENDING, "preempted; may go back into its queue")
    return None


def _clears_up(mark: Mark, seen: Seen | None, silent: str | None, clock: float) -> Status | None:
    """How a job stands that just ended, and whose scheduler may still tell the reason; None where it will not."""
    end = seconds(mark.end)
    if not mark.exit or end is None or abs(clock - end) > _SLOW_WORDS:
        return None
    if seen is None or not seen.word.state.alive or seen.absent is not None or silent is not None:
        return None
    return Status(State.RUNNING, f"its script has ended ({exit_words(mark.exit)}); its scheduler may say why")


def _waits_again(mark: Mark, times: int, seen: Seen | None) -> bool:
    """Whether the attempt of this mark, its `times`-th, is over and the job goes on, by its own word or its queue's."""
    if mark.state == "running" and seen is not None and seen.word.state.alive:
        later = seen.word.state is State.PENDING and bool(mark.start) and seen.since > (seconds(mark.start) or 0.0)
        return later or (seen.word.restarts or 0) >= times
    return mark.state == "requeued"


def _ended(mark: Mark, handed: SubmittedJob | None, seen: Seen | None) -> Status:
    if mark.exit == 0:
        return Status(State.COMPLETED)
    if mark.exit is None:
        return Status(State.UNKNOWN, "its mark of its end lacks the exit status")
    if handed is not None and handed.cancelled and _after(mark, handed.cancelled):
        return Status(State.CANCELLED)
    if seen is not None and seen.word.state in DONE_TO_IT:
        return Status(seen.word.state, seen.word.reason)
    if mark.exit == STOPPED_EXIT:
        return Status(State.STOPPED, "told to ahead of its limit: `hpcbench retry` goes on")
    return Status(State.FAILED, exit_words(mark.exit))


def _after(mark: Mark, cancelled: str) -> bool:
    """Whether the job ended after it was cancelled, as far as clocks of two machines tell."""
    end, told = seconds(mark.end), seconds(cancelled)
    slack = _SKEW if mark.exit in ENDED_BY_SIGNAL else 0.0
    return end is not None and told is not None and end + slack >= told
