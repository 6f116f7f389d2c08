"""Tests of job and run states that are derived from status files, without a scheduler."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.files import write_json
from hpcbench.batch.find_submission import find_root
from hpcbench.batch.schedulers.scheduler import Receipt
from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.errors import UserError

END = {"event": "end", "time": "2026-01-01T00:01:00Z", "state": "completed", "steps": 1, "seconds": 1.0, "reason": ""}
JOB = {"id": "j1", "runs": ["r1"], "walltime": None, "stop_ahead": 1}
NO_END = "exit status 0, but its log has no end event, so the end of the run is unknown"
STAMP = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:01:00Z", "host": "n1", "job": "j1"}


def submission(root: Path, scheduler: str = "slurm", **changes: Any) -> Path:
    """Write a submission of one job with one run, and return its directory."""
    (root / "jobs" / "j1").mkdir(parents=True)
    (root / "runs" / "r1").mkdir(parents=True)
    data = {
        "schema": 1,
        "study": "s",
        "name": "s-1",
        "bundles": [],
        "site": "x",
        "scheduler": scheduler,
        "jobs": [JOB],
    }
    write_json(root / "submission.json", {**data, "runs": [{"id": "r1", "job": "j1", "path": "runs/r1"}], **changes})
    return root


def job_mark(root: Path, code: int) -> None:
    write_json(root / "jobs" / "j1" / "status.json", {"state": "ended", "exit": code, **STAMP})


def run_mark(root: Path, code: int | None) -> None:
    state = {"state": "running"} if code is None else {"state": "ended", "exit": code}
    write_json(root / "runs" / "r1" / "status.json", {**STAMP, **state})


def log(root: Path, *lines: Any) -> None:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (root / "runs" / "r1" / "log.txt").write_text(text, encoding="utf-8")


def states(root: Path) -> tuple[State, State]:
    tracked = track(root)
    return tracked.jobs["j1"].state, tracked.runs["r1"].state


def test_status_files_give_the_states_of_jobs_run_by_hand(tmp_path: Path) -> None:
    root = submission(tmp_path)
    assert states(root) == (State.PENDING, State.PENDING)
    assert "not submitted" in track(root).runs["r1"].reason
    run_mark(root, None)
    write_json(root / "jobs" / "j1" / "status.json", {"state": "running", **STAMP})
    assert states(root) == (State.RUNNING, State.RUNNING)
    log(root, END)
    run_mark(root, 0)
    job_mark(root, 0)
    assert states(root) == (State.COMPLETED, State.COMPLETED)
    assert track(root).over and not track(root).failed


def test_a_run_whose_job_has_ended_is_lost(tmp_path: Path) -> None:
    root = submission(tmp_path)
    job_mark(root, 1)
    assert states(root) == (State.FAILED, State.LOST)
    assert track(root).runs["r1"].reason == "job j1 ended (exit status 1) before this run began"
    run_mark(root, None)
    assert states(root) == (State.FAILED, State.LOST)
    job_mark(root, 0)
    assert states(root) == (State.COMPLETED, State.LOST)
    assert track(root).failed


@pytest.mark.parametrize(
    ("code", "lines", "state", "reason"),
    [
        (0, [END], State.COMPLETED, ""),
        (0, [], State.UNKNOWN, NO_END),
        (0, [json.dumps(END)[:-5]], State.UNKNOWN, NO_END),
        (0, [{**END, "state": "nan", "reason": "step 7"}], State.NAN, "step 7"),
        (1, [{**END, "state": "failed", "reason": "disk"}], State.FAILED, "disk"),
        (1, [END], State.FAILED, "all steps were completed, but then the run failed: exit status 1, without a message"),
        (137, [], State.FAILED, "a rank was killed by signal 9 (KILL), exit status 137, before its first step"),
        (139, [], State.FAILED, "a rank was killed by signal 11 (SEGV), exit status 139, before its first step"),
        (255, [], State.FAILED, "exit status 255, without a message, before its first step"),
        (127, [], State.FAILED, "exit status 127 (command not found), without a message, before its first step"),
        # it was not cancelled
        (143, [], State.FAILED, "a rank was killed by signal 15 (TERM), exit status 143, before its first step"),
        (
            9,
            [
                "=" * 20,
                "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
                "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)",
            ],
            State.FAILED,
            "a rank was killed by signal 9 (KILL), before its first step",
        ),
        (3, ["\x1b[31mno \x00 colours"], State.FAILED, "exit status 3: no colours, before its first step"),
    ],
)
def test_exit_status_and_log_determine_the_end_of_a_run(
    tmp_path: Path, code: int, lines: list[Any], state: State, reason: str
) -> None:
    root = submission(tmp_path)
    run_mark(root, code)
    job_mark(root, 1)
    log(root, *lines)
    run = track(root).runs["r1"]
    assert (run.state, run.reason) == (state, reason)


def test_a_run_that_never_started_has_the_reason_of_its_job(tmp_path: Path) -> None:
    root = submission(tmp_path)
    job_mark(root, 1)
    (root / "jobs" / "j1" / "out.log").write_text("job.sh: line 9: module: command not found\n\n", encoding="utf-8")
    run = track(root).runs["r1"]
    assert run.state is State.LOST
    why = "job.sh: line 9: module: command not found"
    assert run.reason == f"job j1 ended (exit status 1) before this run began: {why}"


def test_a_dry_run_is_not_lost(tmp_path: Path) -> None:
    root = submission(tmp_path, "local", dry_run=True)
    assert states(root) == (State.PENDING, State.PENDING)
    assert "dry run" in track(root).runs["r1"].reason


def handed_to_local(root: Path) -> Path:
    """Write a submission in the state after `submit` to the local scheduler."""
    write_json(root / "site.json", load_site("local")[0].model_dump(mode="json"))
    ledger = Ledger(root)
    handed = ledger.open(BatchJob("s-1-j1", "jobs/j1/job.sh", ["j1"]), {"j1": 0})
    id = str(root / "jobs" / "j1")
    ledger.close(handed, Receipt(id, [id]))
    return root


def test_a_local_job_without_its_queue_is_lost_and_not_completed(tmp_path: Path) -> None:
    root = handed_to_local(submission(tmp_path, "local"))
    assert states(root) == (State.LOST, State.LOST)
    dead = {"pid": 2**22 + 1, "start": 1, "host": socket.gethostname(), "boot": ""}
    queue: dict[str, Any] = {"time": "x", "jobs": [{"id": "j1", "name": "s-1-j1", "after": [], "after_any": False}]}
    (root / "queues").mkdir()
    write_json(root / "queues" / "1.json", {**queue, "process": dead})
    (root / "queues" / "1.log").write_text("noise\nOSError: No space left on device\n", encoding="utf-8")
    assert states(root) == (State.LOST, State.LOST)
    assert "No space left" in track(root).jobs["j1"].reason
    write_json(root / "queues" / "1.json", {**queue, "process": {**dead, "host": "another-machine"}})
    (root / "scheduler.json").unlink()
    assert states(root) == (State.UNKNOWN, State.UNKNOWN)
    assert "another-machine" in track(root).runs["r1"].reason
    write_json(root / "queues" / "1.json", {**queue, "process": dead})
    write_json(root / "jobs" / "j1" / "dropped.json", {"time": "2026-01-01T00:00:00Z", "reason": ""})
    assert states(root) == (State.CANCELLED, State.CANCELLED)


def test_without_a_scheduler_the_state_is_unknown_unless_a_status_file_gives_it(tmp_path: Path) -> None:
    root = handed_to_local(submission(tmp_path, "local"))
    (root / "site.json").unlink()
    assert states(root) == (State.UNKNOWN, State.UNKNOWN)
    assert "site.json: is missing or damaged" in track(root).jobs["j1"].reason
    log(root, END)
    run_mark(root, 0)
    job_mark(root, 0)
    assert states(root) == (State.COMPLETED, State.COMPLETED)


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"jobs": [{}], "runs": []}', '{"jobs": 3}', "\x00"])
def test_a_damaged_submission_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "submission.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        track(tmp_path)
    assert "submission.json: damaged" in str(caught.value) and "\n" not in str(caught.value)


def test_damaged_status_files_are_ignored(tmp_path: Path) -> None:
    root = submission(tmp_path)
    for directory in ("jobs/j1", "runs/r1"):
        (root / directory / "status.json").write_text('{"state": "end', encoding="utf-8")
    assert states(root) == (State.PENDING, State.PENDING)


def test_the_newest_submission_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for message in ("no submission found here",):
        with pytest.raises(UserError, match=message):
            find_root(None)
    for name in ("a/002", "a/010", "b/001", "a/dry-run/099"):
        submission(tmp_path / "results" / name)
    (tmp_path / "results" / "a" / "011").mkdir()  # incomplete: without submission.json
    assert find_root(Path("results/a")) == Path("results/a/010")
    assert find_root(Path("results/a/002")) == Path("results/a/002")
    import os

    os.utime(tmp_path / "results" / "b" / "001" / "submission.json", (2e9, 2e9))
    assert find_root(None) == Path("results/b/001")
    for path, says in (
        ("nope", "no such directory"),
        ("results/a/011", "no submission.json"),
        ("results", "no submission"),
    ):
        with pytest.raises(UserError, match=says):
            find_root(Path(path))
