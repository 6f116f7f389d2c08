"""Tests of the states of a job and a run for each combination of status file, submission and scheduler answer."""

import datetime
from typing import Any

import pytest

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.tracking.ledger import SubmittedJob
from hpcbench.batch.tracking.seen import Seen
from hpcbench.contract.job_state import GRACE, Status, resolve_job_state
from hpcbench.contract.mark import Mark
from hpcbench.contract.state import State

HANDED = "2026-11-21T06:30:00Z"
THEN = datetime.datetime(2026, 11, 21, 6, 30, tzinfo=datetime.timezone.utc).timestamp()
LATER = THEN + 1000
START, END = "2026-11-21T06:31:00Z", "2026-11-21T06:40:00Z"


def handed(begun: int = 0, id: str | None = "7", cancelled: str | None = None) -> SubmittedJob:
    return SubmittedJob("n", "s", ["j"], number=1, begun={"j": begun}, time=HANDED, id=id, cancelled=cancelled)


def ended(exit: int, attempt: int = 1) -> Mark:
    return Mark("ended", attempt, exit, START, END)


RUNS = Mark("running", 1, None, START)
BACK = Mark("requeued", 1, 75, START, END)


def seen(
    state: State, reason: str = "", since: float = THEN, absent: float | None = None, ended: int = 0, **more: Any
) -> Seen:
    return Seen("7", JobStatus(state, reason, **more), since, absent, ended)


def of(
    mark: Mark | None,
    last_seen: Seen | None,
    *,
    submitted: SubmittedJob | None = None,
    requeue: bool = True,
    silent: str | None = None,
    clock: float = LATER,
) -> Status:
    given, answer = (submitted or handed()).make_record("j"), last_seen.told if last_seen else None
    return resolve_job_state(mark, given, answer, requeue=requeue, silent=silent, clock=clock)


@pytest.mark.parametrize(
    ("mark", "last_seen", "state", "reason"),
    [
        # Its own status file is authoritative.
        (ended(0), None, State.COMPLETED, ""),
        (ended(0), seen(State.FAILED), State.COMPLETED, ""),
        (ended(0), seen(State.CANCELLED), State.COMPLETED, ""),
        (ended(3), None, State.FAILED, "exit 3"),
        (ended(137), None, State.FAILED, "killed by SIGKILL"),
        (ended(143), seen(State.COMPLETED), State.FAILED, "killed by SIGTERM"),
        # The scheduler may explain it later.
        (ended(143), seen(State.RUNNING), State.FAILED, "killed by SIGTERM"),
        # The scheduler explains it.
        (ended(143), seen(State.TIMED_OUT, "TIMEOUT"), State.TIMED_OUT, "TIMEOUT"),
        (ended(140), seen(State.TIMED_OUT, "TERM_RUNLIMIT"), State.TIMED_OUT, "TERM_RUNLIMIT"),
        (ended(137), seen(State.OUT_OF_MEMORY, "OUT_OF_MEMORY"), State.OUT_OF_MEMORY, "OUT_OF_MEMORY"),
        (ended(143), seen(State.NODE_FAILED, "NODE_FAIL"), State.NODE_FAILED, "NODE_FAIL"),
        (ended(143), seen(State.CANCELLED, "by 1000"), State.CANCELLED, "by 1000"),
        (ended(75), seen(State.PREEMPTED, "PREEMPTED"), State.PREEMPTED, "PREEMPTED"),
        (ended(75), seen(State.FAILED), State.STOPPED, "stopped at a time limit"),
        # No recorded end: use the scheduler's answer.
        (None, seen(State.PENDING, "Resources"), State.PENDING, "Resources"),
        (RUNS, seen(State.RUNNING), State.RUNNING, ""),
        (RUNS, seen(State.SUSPENDED, "SSUSP"), State.SUSPENDED, "SSUSP"),
        (RUNS, seen(State.TIMED_OUT, "TIMEOUT"), State.TIMED_OUT, "TIMEOUT"),
        (RUNS, seen(State.OUT_OF_MEMORY), State.OUT_OF_MEMORY, "no exit status"),
        (RUNS, seen(State.NODE_FAILED, "NODE_FAIL"), State.NODE_FAILED, "NODE_FAIL"),
        (None, seen(State.CANCELLED, "by 1000"), State.CANCELLED, "by 1000"),
        (RUNS, seen(State.FAILED, exit=1), State.FAILED, "exit 1"),
        # Success requires a status file.
        (RUNS, seen(State.COMPLETED), State.UNKNOWN, "the status file records no end"),
        (None, seen(State.COMPLETED), State.UNKNOWN, "the status file records no end"),
        (RUNS, seen(State.COMPLETED, since=LATER - 5), State.RUNNING, "the status file records no end yet"),
        # A preempted job has not ended until the state persists.
        (RUNS, seen(State.PREEMPTED, since=LATER - GRACE + 1), State.PENDING, "preempted"),
        (RUNS, seen(State.PREEMPTED, since=LATER - GRACE - 1), State.PREEMPTED, "no exit status"),
        # No longer in the queue.
        (RUNS, seen(State.RUNNING, absent=LATER - GRACE + 1), State.RUNNING, ""),
        (RUNS, seen(State.RUNNING, absent=LATER - GRACE - 1), State.LOST, "no longer in its queue"),
        (RUNS, None, State.LOST, "not listed by the scheduler"),
        (None, None, State.LOST, "not listed by the scheduler"),
        (RUNS, seen(State.LOST, "ZOMBI"), State.LOST, "ZOMBI"),
        (RUNS, seen(State.UNKNOWN, "ODD_WORD"), State.UNKNOWN, "ODD_WORD"),
        # Requeued by its scheduler: the answer is newer than the recorded end.
        (ended(143), seen(State.PENDING, "BeginTime", ended=1), State.PENDING, "after attempt 1; BeginTime"),
        (ended(143), seen(State.PENDING, ended=0), State.FAILED, "killed by SIGTERM"),
        (ended(143), seen(State.PENDING, ended=1, absent=LATER), State.FAILED, "killed by SIGTERM"),
        (ended(143, 2), seen(State.PENDING, ended=1), State.FAILED, "killed by SIGTERM"),
        (ended(143), seen(State.RUNNING, ended=1, restarts=1), State.RUNNING, "after attempt 1"),
        (ended(143), seen(State.RUNNING, ended=1, restarts=0), State.FAILED, "killed by SIGTERM"),
        (ended(143), seen(State.RUNNING, ended=1), State.FAILED, "killed by SIGTERM"),
        (ended(143), seen(State.PREEMPTED, since=LATER - 9, ended=1), State.PENDING, "may return"),
        (ended(0), seen(State.PENDING, ended=1), State.COMPLETED, ""),
        (Mark("ended", 1, None, START, END), None, State.UNKNOWN, "contains no exit status"),
        # Requeued.
        (BACK, seen(State.PENDING, "BeginTime"), State.PENDING, "after attempt 1; BeginTime"),
        (BACK, seen(State.RUNNING), State.RUNNING, "after attempt 1"),
        (BACK, seen(State.CANCELLED, "by 0"), State.CANCELLED, "by 0"),
        (ended(143), seen(State.PENDING, "BeginTime", restarts=1), State.PENDING, "after attempt 1; BeginTime"),
        (ended(143), seen(State.RUNNING, restarts=1), State.RUNNING, "after attempt 1"),
        (RUNS, seen(State.PENDING, "BeginTime", restarts=1), State.PENDING, "after attempt 1; BeginTime"),
        (RUNS, seen(State.RUNNING, restarts=0), State.RUNNING, ""),
        (ended(143, 2), seen(State.RUNNING, restarts=1), State.FAILED, "SIGTERM"),
        (ended(0), seen(State.PENDING, restarts=1), State.COMPLETED, ""),
    ],
)
def test_marks_and_words(mark: Mark | None, last_seen: Seen | None, state: State, reason: str) -> None:
    status = of(mark, last_seen)
    assert (status.state, reason in status.reason) == (state, True), status


@pytest.mark.parametrize(("mark", "state"), [(None, State.PENDING), (RUNS, State.RUNNING), (BACK, State.PENDING)])
def test_just_handed_in_it_need_not_be_listed(mark: Mark | None, state: State) -> None:
    assert of(mark, None, clock=THEN + GRACE - 1).state is state
    assert of(mark, None, clock=THEN + GRACE + 1).state is State.LOST


def test_a_scheduler_that_cannot_be_asked_leaves_it_unknown_unless_the_mark_tells() -> None:
    status = of(RUNS, seen(State.RUNNING), silent="squeue: no answer")
    assert (status.state, status.reason) == (State.UNKNOWN, "squeue: no answer; last seen running")
    assert of(ended(0), None, silent="squeue: no answer").state is State.COMPLETED
    assert of(None, seen(State.CANCELLED, "by 1000"), silent="squeue: no answer").state is State.CANCELLED


def test_a_scheduler_that_clears_up_may_tell_the_reason_later() -> None:
    just = datetime.datetime.fromisoformat(END.replace("Z", "+00:00")).timestamp() + 5
    status = of(ended(143), seen(State.RUNNING), clock=just)
    assert (status.state, status.exit) == (State.RUNNING, 143) and "SIGTERM" in status.reason
    assert of(ended(143), seen(State.RUNNING, absent=just), clock=just).state is State.FAILED
    assert of(ended(143), seen(State.RUNNING), clock=just, silent="squeue: no answer").state is State.FAILED
    assert of(ended(143), seen(State.TIMED_OUT), clock=just).state is State.TIMED_OUT
    assert of(ended(0), seen(State.RUNNING), clock=just).state is State.COMPLETED
    assert of(Mark("ended", 1, 143, START, "once"), seen(State.RUNNING), clock=just).state is State.FAILED


def test_marks_of_the_past_do_not_count() -> None:
    again = handed(begun=1)
    assert of(ended(3, 1), seen(State.PENDING), submitted=again).state is State.PENDING
    assert of(ended(0, 1), seen(State.TIMED_OUT, "TIMEOUT"), submitted=again).state is State.TIMED_OUT
    status = of(ended(0, 2), None, submitted=again)
    assert (status.state, status.attempt, status.exit, status.end) == (State.COMPLETED, 2, 0, END)


def test_cancelled_by_us_only_if_it_ended_after_that() -> None:
    assert of(ended(143), None, submitted=handed(cancelled="2026-11-21T06:39:59Z")).state is State.CANCELLED
    assert of(ended(1), None, submitted=handed(cancelled="2026-11-21T06:40:01Z")).state is State.FAILED
    assert (
        of(ended(143), None, submitted=handed(cancelled="2026-11-21T06:40:50Z")).state is State.CANCELLED
    )  # clocks differ
    assert of(ended(143), None, submitted=handed(cancelled="2026-11-21T06:41:01Z")).state is State.FAILED
    assert of(ended(0), None, submitted=handed(cancelled="2026-11-21T06:39:59Z")).state is State.COMPLETED


def test_cancelled_by_us_and_gone_without_a_word() -> None:
    submitted = handed(cancelled="2026-11-21T06:39:59Z")
    assert of(RUNS, None, submitted=submitted).state is State.CANCELLED
    assert of(RUNS, seen(State.RUNNING, absent=LATER), submitted=submitted).state is State.CANCELLED
    assert of(RUNS, seen(State.RUNNING), submitted=submitted).state is State.RUNNING
    assert of(RUNS, None, submitted=submitted, silent="squeue: no answer").state is State.UNKNOWN


def test_a_job_whose_answer_is_missing() -> None:
    status = of(None, None, submitted=handed(id=None))
    assert status.state is State.UNKNOWN and "run `hpcbench submit` again" in status.reason
    assert of(ended(0), None, submitted=handed(id=None)).state is State.COMPLETED


def test_scripts_run_by_hand_have_their_marks_only() -> None:
    assert resolve_job_state(RUNS, None, None, requeue=False, silent=None, clock=LATER).state is State.RUNNING
    assert resolve_job_state(ended(1), None, None, requeue=False, silent=None, clock=LATER).state is State.FAILED


def test_a_preempted_job_that_may_not_go_back_is_over() -> None:
    last_seen = seen(State.PREEMPTED, "PREEMPTED", since=LATER)
    assert of(RUNS, last_seen, requeue=False).state is State.PREEMPTED
    assert of(RUNS, last_seen, requeue=True).state is State.PENDING


def test_the_attempt_under_way() -> None:
    assert of(ended(143), seen(State.PENDING, restarts=1)).attempt == 2
    assert of(RUNS, seen(State.PENDING, restarts=1)).attempt == 2
    assert of(RUNS, seen(State.RUNNING, restarts=0)).attempt == 1
    assert of(None, seen(State.PENDING)).attempt == 1
    assert of(BACK, seen(State.PENDING)).attempt == 2
    status = of(ended(143), seen(State.PENDING, ended=1))
    assert (status.attempt, status.end, status.exit) == (2, None, None)
    assert of(Mark("running", 3, None, START), seen(State.RUNNING)).attempt == 3
    assert of(ended(1), seen(State.PENDING), submitted=handed(begun=1)).attempt == 2
