"""Tests of state changes that a scheduler's answers cause. States do not move backwards unless the job is restarted."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.tracking.seen import Seen, advance, load, save
from hpcbench.contract.state import State

RUNNING = Seen("7", JobStatus(State.RUNNING), 100.0)


def test_the_first_answer_counts_and_an_earlier_silence_does_not() -> None:
    assert advance(None, "7", None, 5.0) is None
    assert advance(None, "7", JobStatus(State.PENDING, "Resources"), 5.0) == Seen(
        "7", JobStatus(State.PENDING, "Resources"), 5.0
    )


def test_another_submission_is_another_job() -> None:
    assert advance(RUNNING, "8", None, 200.0) is None
    assert advance(RUNNING, "8", JobStatus(State.PENDING), 200.0) == Seen("8", JobStatus(State.PENDING), 200.0)


def test_absence_is_counted_from_the_first_answer_that_lacks_it() -> None:
    once = advance(RUNNING, "7", None, 200.0)
    assert once == replace(RUNNING, absent=200.0)
    assert advance(once, "7", None, 300.0) == once
    assert advance(once, "7", JobStatus(State.RUNNING), 400.0) == replace(RUNNING, word=JobStatus(State.RUNNING))


def test_a_node_that_does_not_answer_for_a_while_changes_nothing() -> None:
    gone = replace(RUNNING, absent=150.0)
    assert advance(gone, "7", JobStatus(State.UNKNOWN, "UNKWN"), 200.0) == RUNNING


@pytest.mark.parametrize(
    ("before", "word", "after"),
    [
        (State.PENDING, JobStatus(State.RUNNING), State.RUNNING),
        (State.RUNNING, JobStatus(State.SUSPENDED), State.SUSPENDED),
        (State.SUSPENDED, JobStatus(State.RUNNING), State.RUNNING),
        (State.RUNNING, JobStatus(State.PENDING), State.PENDING),  # it was requeued
        (State.RUNNING, JobStatus(State.COMPLETED), State.COMPLETED),
        (State.COMPLETED, JobStatus(State.RUNNING), State.RUNNING),  # an operator requeued it
        (State.FAILED, JobStatus(State.PENDING), State.PENDING),
        (State.FAILED, JobStatus(State.PENDING, restarts=1), State.PENDING),
        (State.TIMED_OUT, JobStatus(State.RUNNING, restarts=1), State.RUNNING),
        (State.PREEMPTED, JobStatus(State.PENDING), State.PENDING),
        (State.NODE_FAILED, JobStatus(State.RUNNING), State.RUNNING),
        (State.LOST, JobStatus(State.RUNNING), State.RUNNING),  # the daemon of its node runs again
        (State.CANCELLED, JobStatus(State.FAILED), State.FAILED),  # the later of two ends
        (State.FAILED, JobStatus(State.RUNNING), State.RUNNING),  # by hand, long after
    ],
)
def test_allowed_changes_of_state(before: State, word: JobStatus, after: State) -> None:
    advanced = advance(Seen("7", JobStatus(before), 100.0), "7", word, 200.0)
    assert advanced is not None and advanced.word.state is after


def test_a_state_is_as_old_as_its_first_answer() -> None:
    advanced = advance(RUNNING, "7", JobStatus(State.RUNNING, "again"), 200.0)
    assert advanced is not None and advanced.since == 100.0
    advanced = advance(RUNNING, "7", JobStatus(State.FAILED), 200.0)
    assert advanced is not None and advanced.since == 200.0


def test_the_number_of_recorded_ends_at_the_time_of_the_call() -> None:
    asked = advance(RUNNING, "7", JobStatus(State.PENDING), 200.0, ended=1)
    assert asked is not None and asked.ended == 1
    assert advance(asked, "7", None, 300.0, ended=2) == replace(asked, absent=300.0, ended=2)
    assert advance(asked, "7", JobStatus(State.UNKNOWN), 300.0, ended=2) == asked


def test_answers_are_stored_and_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    seen = {"j1": Seen("7", JobStatus(State.TIMED_OUT, "TIMEOUT", 1, accounting={"Elapsed": "60"}), 1.5, 2.5)}
    save(tmp_path, seen)
    assert load(tmp_path) == seen
    name_field = fields(Seen)[0].name
    unknown_state = json.dumps({"j1": {name_field: "7", "word": {"state": "gone"}}})
    for damaged in ("", "[]", "{}", '{"j1": 3}', unknown_state, "[" * 9999):
        (tmp_path / "scheduler.json").write_text(damaged)
        assert load(tmp_path) == {}


@pytest.mark.parametrize(
    ("word", "after"),
    [
        (JobStatus(State.RUNNING), State.FAILED),  # an answer older than the end
        (JobStatus(State.SUSPENDED), State.FAILED),
        (JobStatus(State.RUNNING, restarts=1), State.RUNNING),
        (JobStatus(State.RUNNING, start="2026-01-01T02:00:00Z"), State.RUNNING),
        (JobStatus(State.RUNNING, start="2026-01-01T00:00:00Z"), State.FAILED),
        (JobStatus(State.PENDING), State.PENDING),
    ],
)
def test_an_end_is_not_replaced_by_a_slightly_older_answer(word: JobStatus, after: State) -> None:
    before = Seen("7", JobStatus(State.FAILED, end="2026-01-01T01:00:00Z"), 100.0)
    advanced = advance(before, "7", word, 130.0)
    assert advanced is not None and advanced.word.state is after
