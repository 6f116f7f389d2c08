"""What answers of a scheduler may change: states do not move backwards, unless the job is started again."""

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.batch.schedulers.job_status import Word
from hpcbench.batch.tracking.seen import Seen, advance, load, save
from hpcbench.contract.state import State

RUNNING = Seen("7", Word(State.RUNNING), 100.0)


def test_the_first_word_counts_and_silence_before_it_is_nothing() -> None:
    assert advance(None, "7", None, 5.0) is None
    assert advance(None, "7", Word(State.PENDING, "Resources"), 5.0) == Seen("7", Word(State.PENDING, "Resources"), 5.0)


def test_another_handing_in_is_another_job() -> None:
    assert advance(RUNNING, "8", None, 200.0) is None
    assert advance(RUNNING, "8", Word(State.PENDING), 200.0) == Seen("8", Word(State.PENDING), 200.0)


def test_absence_is_counted_from_the_first_answer_that_lacks_it() -> None:
    once = advance(RUNNING, "7", None, 200.0)
    assert once == replace(RUNNING, absent=200.0)
    assert advance(once, "7", None, 300.0) == once
    assert advance(once, "7", Word(State.RUNNING), 400.0) == replace(RUNNING, word=Word(State.RUNNING))


def test_a_node_that_does_not_answer_for_a_while_changes_nothing() -> None:
    gone = replace(RUNNING, absent=150.0)
    assert advance(gone, "7", Word(State.UNKNOWN, "UNKWN"), 200.0) == RUNNING


@pytest.mark.parametrize(
    ("before", "word", "after"),
    [
        (State.PENDING, Word(State.RUNNING), State.RUNNING),
        (State.RUNNING, Word(State.SUSPENDED), State.SUSPENDED),
        (State.SUSPENDED, Word(State.RUNNING), State.RUNNING),
        (State.RUNNING, Word(State.PENDING), State.PENDING),  # it was put back
        (State.RUNNING, Word(State.COMPLETED), State.COMPLETED),
        (State.COMPLETED, Word(State.RUNNING), State.RUNNING),  # an operator put it back
        (State.FAILED, Word(State.PENDING), State.PENDING),
        (State.FAILED, Word(State.PENDING, restarts=1), State.PENDING),
        (State.TIMED_OUT, Word(State.RUNNING, restarts=1), State.RUNNING),
        (State.PREEMPTED, Word(State.PENDING), State.PENDING),
        (State.NODE_FAILED, Word(State.RUNNING), State.RUNNING),
        (State.LOST, Word(State.RUNNING), State.RUNNING),  # its node's daemon is back
        (State.CANCELLED, Word(State.FAILED), State.FAILED),  # the later word of two ends
    ],
)
def test_what_may_follow_what(before: State, word: Word, after: State) -> None:
    found = advance(Seen("7", Word(before), 100.0), "7", word, 200.0)
    assert found is not None and found.word.state is after


def test_a_state_is_as_old_as_its_first_word() -> None:
    found = advance(RUNNING, "7", Word(State.RUNNING, "again"), 200.0)
    assert found is not None and found.since == 100.0
    found = advance(RUNNING, "7", Word(State.FAILED), 200.0)
    assert found is not None and found.since == 200.0


def test_which_end_was_on_record_when_it_was_asked_for() -> None:
    asked = advance(RUNNING, "7", Word(State.PENDING), 200.0, ended=1)
    assert asked is not None and asked.ended == 1
    assert advance(asked, "7", None, 300.0, ended=2) == replace(asked, absent=300.0, ended=2)
    assert advance(asked, "7", Word(State.UNKNOWN), 300.0, ended=2) == asked


def test_it_is_kept_on_disk_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    seen = {"j1": Seen("7", Word(State.TIMED_OUT, "TIMEOUT", 1, accounting={"Elapsed": "60"}), 1.5, 2.5)}
    save(tmp_path, seen)
    assert load(tmp_path) == seen
    for damaged in ("", "[]", "{}", '{"j1": 3}', '{"j1": {"parcel": "7", "word": {"state": "gone"}}}', "[" * 9999):
        (tmp_path / "scheduler.json").write_text(damaged)
        assert load(tmp_path) == {}
