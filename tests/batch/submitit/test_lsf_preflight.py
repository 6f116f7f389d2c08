"""Tests of the checks with LSF before submission, and of how LSF's answers are interpreted."""

from pathlib import Path

import pytest
from programs import Programs

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.lsf_preflight import preflight
from hpcbench.errors import UserError

JOBS = [BatchJob(f"j{k}", f"j{k}/job.sh", [f"j{k}"]) for k in range(3)]
TABLE = """\
QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP
pbatch           30  {}       -    -    -    -     0     0     0     0
"""
"""Columns from IBM's command reference."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three jobs, two for one queue and one for the site's default queue."""
    for k in range(3):
        (tmp_path / f"j{k}").mkdir()
        queue = "#BSUB -q pbatch\n" if k < 2 else ""
        (tmp_path / f"j{k}" / "job.sh").write_text(f"#!/bin/bash\n#BSUB -nnodes 2\n{queue}true\n# -q other\n")
    return tmp_path


def test_each_queue_is_checked_once_and_an_open_one_gives_no_note(root: Path, programs: Programs) -> None:
    programs.answer("bqueues", TABLE.format("Open:Active"))
    assert list(preflight(root, JOBS)) == []
    assert [call["argv"] for call in programs.calls("bqueues")] == [["-w", "pbatch"]]


def test_an_inactive_queue_is_reported(root: Path, programs: Programs) -> None:
    programs.answer("bqueues", TABLE.format("Open:Inact_Win"))
    assert list(preflight(root, JOBS)) == ["queue pbatch accepts jobs but starts none at the moment (Open:Inact_Win)"]


@pytest.mark.parametrize(
    ("out", "err", "status", "message"),
    [
        (TABLE.format("Closed:Active"), "", 0, r"queue pbatch accepts no jobs \(Closed:Active\): set queue"),
        ("", "pbatch: No such queue\n", 255, "LSF has no queue pbatch: set queue: in the study"),
    ],
)
def test_a_closed_queue_is_refused_before_submission(
    root: Path, programs: Programs, out: str, err: str, status: int, message: str
) -> None:
    programs.answer("bqueues", out, err, status=status)
    with pytest.raises(UserError, match=message):
        list(preflight(root, JOBS))


@pytest.mark.parametrize(
    ("out", "err", "status"),
    [
        ("", "LSF is down. Please wait ...\n", 255),
        ("", "bqueues: illegal option -- w\n", 255),
        ("STRANGE COLUMNS\npbatch Closed\n", "", 0),
        ("QUEUE_NAME PRIO STATUS\npbatch 30\n", "", 0),
        ("", "", 0),
    ],
)
def test_an_unclear_answer_does_not_prevent_submission(
    root: Path, programs: Programs, out: str, err: str, status: int
) -> None:
    programs.answer("bqueues", out, err, status=status)
    assert list(preflight(root, JOBS)) == []


def test_a_variant_of_lsf_without_bqueues_is_not_asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    assert list(preflight(root, JOBS)) == []
