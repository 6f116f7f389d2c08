"""Tests of when the scheduler is queried, for which jobs, and which answers are stored."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.files import now, write_json
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.scheduler import JobScheduler, Receipt
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.collect.find import Jobs
from hpcbench.contract.state import State
from hpcbench.errors import UserError


class Slow(JobScheduler):
    """A scheduler that returns the answers that a test sets, and counts its calls."""

    kind = "slurm"

    def __init__(self) -> None:
        super().__init__(Path("/"), None)  # type: ignore[arg-type]
        self.words: dict[str, JobStatus] | str = {}
        self.questions: list[list[str]] = []

    def submit(self, job: BatchJob) -> Receipt:
        raise NotImplementedError

    def find(self, name: str, jobs: int) -> Receipt | None:
        raise NotImplementedError

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        self.questions.append(list(ids))
        if isinstance(self.words, str):
            raise UserError(self.words)
        return {id: word for id, word in self.words.items() if id in ids}

    def cancel(self, ids: Sequence[str]) -> Mapping[str, str]:
        raise NotImplementedError


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Slow:
    scheduler = Slow()
    monkeypatch.setattr("hpcbench.batch.tracking.track.open_scheduler", lambda root: scheduler)
    return scheduler


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A submission of two jobs, with the ids 11 and 12 and one run each."""
    jobs, runs = [], []
    for k in (1, 2):
        (tmp_path / "jobs" / f"j{k}").mkdir(parents=True)
        (tmp_path / "runs" / f"r{k}").mkdir(parents=True)
        jobs.append({"id": f"j{k}", "runs": [f"r{k}"], "walltime": 60, "stop_ahead": 10})
        runs.append({"id": f"r{k}", "job": f"j{k}", "path": f"runs/r{k}"})
    write_json(
        tmp_path / "submission.json",
        {"study": "s", "name": "s-1", "site": "x", "scheduler": "slurm", "jobs": jobs, "bundles": [], "runs": runs},
    )
    ledger = Ledger(tmp_path)
    for k in (1, 2):
        ledger.close(ledger.open(BatchJob(f"s-{k}", "job.sh", [f"j{k}"]), {f"j{k}": 0}), Receipt(f"1{k}", [f"1{k}"]))
    return tmp_path


def mark(root: Path, job: str, exit: int, end: str = "2026-01-01T00:01:00Z") -> None:
    stamp = {"start": "2026-01-01T00:00:00Z", "end": end}
    write_json(root / "jobs" / job / "status.json", {"state": "ended", "attempt": 1, "exit": exit, **stamp})


def states(tracked: Tracked) -> list[State]:
    return [tracked.jobs[job].state for job in ("j1", "j2")]


def test_one_call_for_all_jobs_and_none_without_need(root: Path, scheduler: Slow) -> None:
    scheduler.words = {"11": JobStatus(State.RUNNING), "12": JobStatus(State.PENDING, "Resources")}
    assert states(track(root)) == [State.RUNNING, State.PENDING]
    assert scheduler.questions == [["11", "12"]]
    assert states(track(root, ask=False)) == [State.RUNNING, State.PENDING]
    assert len(scheduler.questions) == 1


def test_accounting_of_an_ended_job_is_asked_for_once(root: Path, scheduler: Slow) -> None:
    mark(root, "j1", 0)
    mark(root, "j2", 1)
    scheduler.words = {
        "11": JobStatus(State.COMPLETED, accounting={"Elapsed": "60"}),
        "12": JobStatus(State.FAILED, exit=1, accounting={"Elapsed": "9"}),
    }
    assert states(track(root)) == [State.COMPLETED, State.FAILED]
    assert states(track(root)) == [State.COMPLETED, State.FAILED]
    assert scheduler.questions == [["11", "12"]]
    stored = json.loads((root / "scheduler.json").read_text(encoding="utf-8"))
    assert stored["j1"]["word"]["accounting"] == {"Elapsed": "60"}


def test_a_silent_scheduler_matters_only_for_jobs_without_an_end(root: Path, scheduler: Slow) -> None:
    scheduler.words = "squeue: no answer within 30 s"
    mark(root, "j1", 0)
    tracked = track(root)
    assert states(tracked) == [State.COMPLETED, State.UNKNOWN]
    assert tracked.silent == "squeue: no answer within 30 s" and not tracked.over
    mark(root, "j2", 0)
    tracked = track(root)
    assert states(tracked) == [State.COMPLETED, State.COMPLETED] and tracked.silent is None


def test_a_stored_end_holds_when_the_scheduler_no_longer_answers(root: Path, scheduler: Slow) -> None:
    scheduler.words = {"11": JobStatus(State.CANCELLED, "by 1000"), "12": JobStatus(State.NODE_FAILED, "NODE_FAIL")}
    assert states(track(root)) == [State.CANCELLED, State.NODE_FAILED]
    scheduler.words = "squeue: not found"
    assert states(track(root)) == [State.CANCELLED, State.NODE_FAILED]


def test_ends_that_may_be_revoked_are_asked_for_again_for_a_while(
    root: Path, scheduler: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.words = {"11": JobStatus(State.NODE_FAILED), "12": JobStatus(State.CANCELLED)}
    track(root)
    scheduler.words = {"11": JobStatus(State.RUNNING), "12": JobStatus(State.CANCELLED)}
    assert states(track(root)) == [State.RUNNING, State.CANCELLED]
    later = time.time() + 3600
    monkeypatch.setattr("hpcbench.batch.tracking.track.time.time", lambda: later)
    scheduler.questions.clear()
    track(root)
    assert scheduler.questions == [["11"]]


def test_a_submission_on_a_full_disk_is_tracked(root: Path, scheduler: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("hpcbench.batch.tracking.seen.write_json", full)
    scheduler.words = {"11": JobStatus(State.RUNNING), "12": JobStatus(State.RUNNING)}
    assert states(track(root)) == [State.RUNNING, State.RUNNING]


def test_the_reason_of_a_failure_is_asked_for_soon_after_the_end_of_its_script(
    root: Path, scheduler: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.collect.find.open_scheduler", lambda root: scheduler)
    clock = 0.0
    jobs = Jobs(root, lambda: clock)
    scheduler.words = {"11": JobStatus(State.RUNNING), "12": JobStatus(State.RUNNING)}
    mark(root, "j1", 0)
    jobs()
    mark(root, "j2", 1, end=now())
    times = []
    while clock < 40:
        clock += 1.0
        before = len(scheduler.questions)
        assert jobs()["j2"].state is State.RUNNING  # its scheduler may still report a different reason
        times += [clock] if len(scheduler.questions) > before else []
    assert times == [3.0, 7.0, 15.0, 31.0]
    scheduler.words = {"12": JobStatus(State.OUT_OF_MEMORY, "OOM", 137)}
    clock = 63.0
    assert jobs()["j2"].state is State.OUT_OF_MEMORY


def test_a_waiting_job_whose_scheduler_does_not_answer_has_not_ended(root: Path, scheduler: Slow) -> None:
    scheduler.words = {"11": JobStatus(State.PENDING), "12": JobStatus(State.PENDING)}
    track(root)
    scheduler.words = "bjobs: LSF is down"
    run = track(root).runs["r1"]
    assert (run.state, run.reason) == (
        State.UNKNOWN,
        "the state of job j1 is unknown: bjobs: LSF is down; last seen pending",
    )
