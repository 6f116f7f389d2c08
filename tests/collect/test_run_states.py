"""Tests of how the state of a run is derived from status files, jobs, logs and launcher output."""

import json
from pathlib import Path

import pytest
from planted_results import Planted, write, write_marker

from hpcbench.collect import submission
from hpcbench.collect.submission import RunResult
from hpcbench.contract.reason import diagnose, find_signal
from hpcbench.contract.state import BAD, OPEN, JobSummary, State
from hpcbench.errors import UserError

HYDRA = """

===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4003 RUNNING AT n1
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
"""
TRACEBACK = """Traceback (most recent call last):
  File "x.py", line 10, in <module>
    raise ValueError("first")
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "x.py", line 12, in <module>
RuntimeError: boom: tensor 3
Abort(1) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "001", [Planted("baseline", 1, 0.25, 2.7), Planted("mzhybrid", 1, 0.25, 2.7)], steps=6)


def run_of(root: Path, job: State = "unknown", exit: int | None = None, attempt: int = 1) -> RunResult:
    jobs = submission.load(root, {"j0001-r1": JobSummary("j0001-r1", job, exit, attempt=attempt)})
    return next(run for run in jobs.runs if run.scheme == "mzhybrid")


def directory(root: Path) -> Path:
    return root / "runs" / "r1-mzhybrid"


def edit_log(root: Path, keep: int, tail: str = "") -> None:
    """Truncate the log to its first `keep` lines, and append `tail`."""
    path = directory(root) / "log.txt"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:keep]) + tail)


def job_runs_on(root: Path) -> None:
    (root / "jobs" / "j0001-r1" / "status.json").unlink()


def test_completed(root: Path) -> None:
    run = run_of(root)
    assert (run.state, run.verdict.reason, run.exit, run.host) == ("completed", "", 0, "n1")
    assert run.settings.run == "r1-mzhybrid"


def test_exit_status_zero_without_an_end_is_not_a_success(root: Path) -> None:
    edit_log(root, 7)
    run = run_of(root)
    assert run.state == "unknown"
    assert "exit status 0, but its log has no end event" in run.verdict.reason
    assert run.verdict.where == f"{directory(root) / 'log.txt'}:7"


def test_exit_status_zero_without_a_log_is_not_a_success(root: Path) -> None:
    (directory(root) / "log.txt").unlink()
    run = run_of(root)
    assert (run.state, run.log) == ("unknown", None)
    assert "its log is missing" in run.verdict.reason


@pytest.mark.parametrize("status", [9, 137])
def test_a_killed_rank_is_named(root: Path, status: int) -> None:
    edit_log(root, 7, 'step 5/6 | loss 3.2" ' + HYDRA)
    write_marker(directory(root), "j0001-r1", status)
    run = run_of(root)
    assert run.state == "failed"
    assert run.verdict.reason == (
        "rank 3 (pid 4003 on n1) was killed by signal 9 (KILL), after step 4 of 6, with a truncated last line"
    )
    where = run.verdict.where
    assert where is not None
    path, line = where.rsplit(":", 1)
    assert "Killed (signal 9)" in Path(path).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize(
    ("status", "reason"), [(9, "9 (KILL)"), (137, "9 (KILL)"), (139, "11 (SEGV)"), (15, "15 (TERM)")]
)
def test_the_exit_status_gives_the_signal(root: Path, status: int, reason: str) -> None:
    edit_log(root, 7)
    write_marker(directory(root), "j0001-r1", status)
    run = run_of(root)
    assert run.state == "failed"
    assert run.verdict.reason == f"a rank was killed by signal {reason}, exit status {status}, after step 4 of 6"


def test_signals_in_exit_statuses() -> None:
    assert [find_signal(status) for status in (0, 1, 2, 9, 127, 128, 130, 137, 192, 200, 255)] == [
        None, None, None, 9, None, None, 2, 9, 64, None, None,
    ]  # fmt: skip


def test_the_last_exception_is_the_reason(root: Path) -> None:
    edit_log(root, 3)
    (directory(root) / "err.txt").write_text(TRACEBACK)
    write_marker(directory(root), "j0001-r1", 1)
    run = run_of(root)
    assert run.verdict.reason == "RuntimeError: boom: tensor 3, before its first step"
    assert run.verdict.where == f"{directory(root) / 'err.txt'}:10"


def test_the_workers_own_message_comes_first(root: Path) -> None:
    edit_log(root, 2)
    (directory(root) / "err.txt").write_text(
        TRACEBACK + "hpcbench.train: run.json: ranks: 4 started, 8 asked for\n" + HYDRA
    )
    write_marker(directory(root), "j0001-r1", 2)
    assert run_of(root).verdict.reason.startswith("run.json: ranks: 4 started, 8 asked for")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "mpirun noticed that process rank 2 with PID 0 on node n7 exited on signal 9 (Killed).",
            "rank 2 on n7 was killed by signal 9 (KILL)",
        ),
        ("srun: error: n3: task 5: Killed", "rank 5 on n3 was killed by signal 9 (KILL)"),
        ("srun: error: n3: tasks 4-7: Segmentation fault", "a rank was killed by signal 11 (SEGV)"),
        ("=   KILLED BY SIGNAL: 11 (Segmentation fault)", "a rank was killed by signal 11 (SEGV)"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=3.0", "out of memory: the scheduler killed a process"),
        (
            "slurmstepd: error: *** JOB 3 ON n1 CANCELLED AT 2026 DUE TO TIME LIMIT ***",
            "the job reached its time limit",
        ),
    ],
)
def test_messages_of_launchers(tmp_path: Path, output: str, reason: str) -> None:
    (tmp_path / "err.txt").write_text(f"noise\n{output}\nnoise\n")
    diagnosis = diagnose(3, tmp_path / "err.txt", tmp_path / "none.txt")
    assert diagnosis.reason == reason
    assert diagnosis.where == f"{tmp_path / 'err.txt'}:2"


def test_escape_sequences_do_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "err.txt").write_bytes(b"ValueError: \x1b]0;title\x07\x1b[2J" + b"z" * 5000 + b"\n")
    reason = diagnose(1, tmp_path / "err.txt", tmp_path / "none.txt").reason
    assert reason.isprintable() and len(reason) <= 300


def test_nan_is_distinguished_from_failure(root: Path) -> None:
    end = {"event": "end", "time": "", "state": "nan", "steps": 4, "seconds": 3, "reason": "loss is nan at step 4"}
    edit_log(root, 6, "step 4/6 | loss nan | time 0.2500 s |\n" + json.dumps(end) + "\n")
    write_marker(directory(root), "j0001-r1", 1)
    run = run_of(root)
    assert (run.state, run.verdict.reason) == ("nan", "loss is nan at step 4")
    assert run.verdict.where == f"{directory(root) / 'log.txt'}:8"


def test_nan_in_the_last_line_is_detected_without_an_end(root: Path) -> None:
    edit_log(root, 6, "step 4/6 | loss inf | time 0.2500 s |\n")
    write_marker(directory(root), "j0001-r1", 1)
    assert run_of(root).state == "nan"


def test_a_worker_that_reports_a_failure(root: Path) -> None:
    edit_log(root, 9, '{"event": "end", "state": "failed", "reason": "replicas have different weights"}\n')
    write_marker(directory(root), "j0001-r1", 1)
    run = run_of(root)
    assert (run.state, run.verdict.reason) == ("failed", "replicas have different weights")


def test_a_run_that_was_cancelled_in_its_middle(root: Path) -> None:
    edit_log(root, 7)
    write_marker(directory(root), "j0001-r1", 143)
    assert run_of(root, "cancelled").state == "cancelled"
    assert run_of(root).state == "failed"


def test_completed_by_its_log_but_not_by_its_exit(root: Path) -> None:
    write_marker(directory(root), "j0001-r1", 139)
    run = run_of(root)
    assert run.state == "failed"
    assert run.verdict.reason.startswith(
        "all steps were completed, but then the run failed: a rank was killed by signal 11"
    )


def test_an_unknown_end_is_not_a_success(root: Path) -> None:
    edit_log(root, 9, '{"event": "end", "state": "great"}\n')
    assert run_of(root).state == "unknown"


@pytest.mark.parametrize(
    "marker", ["", "{", "[]", '"x"', '{"state": "done"}', '{"state": "ended"}', '{"state": "ended", "exit": "0"}']
)
def test_an_unreadable_marker_is_not_a_success(root: Path, marker: str) -> None:
    (directory(root) / "status.json").write_text(marker)
    run = run_of(root)
    assert run.state == "unknown"
    assert run.verdict.where == f"{directory(root) / 'status.json'}:1"


@pytest.mark.parametrize(
    ("job", "begun", "state"),
    [
        ("running", True, "running"),
        ("running", False, "pending"),
        ("pending", False, "pending"),
        ("cancelled", True, "cancelled"),
        ("cancelled", False, "cancelled"),
        ("lost", True, "lost"),
        ("lost", False, "lost"),
        ("unknown", True, "incomplete"),
        ("unknown", False, "unknown"),
    ],
)
def test_a_run_without_exit_status_has_the_state_of_its_job(root: Path, job: State, begun: bool, state: str) -> None:
    job_runs_on(root)
    if begun:
        edit_log(root, 7)
        (directory(root) / "status.json").write_text('{"state": "running", "start": "2026-11-21T06:30:00Z"}')
    else:
        (directory(root) / "status.json").unlink()
        (directory(root) / "log.txt").unlink()
    assert run_of(root, job).state == state


def test_a_job_that_ended_before_the_run_began(root: Path) -> None:
    (directory(root) / "status.json").unlink()
    (directory(root) / "log.txt").unlink()
    run = run_of(root, "completed", 0)
    assert run.state == "lost"
    assert run.verdict.reason == "job j0001-r1 ended (exit status 0) before this run began"


def test_a_job_that_ended_in_the_middle_of_the_run(root: Path) -> None:
    edit_log(root, 7)
    (directory(root) / "status.json").write_text('{"state": "running", "start": "2026-11-21T06:30:00Z"}')
    run = run_of(root, "completed", 0)
    assert run.state == "lost"
    assert "without a status file of this run after step 4 of 6" in run.verdict.reason


def test_a_missing_directory(root: Path) -> None:
    for path in directory(root).iterdir():
        path.unlink()
    directory(root).rmdir()
    assert run_of(root, "completed", 0).state == "lost"


PLAN = b'{"study": "d", "name": "d-1", "site": "s", "scheduler": "local", "jobs": [], "bundles": [], '


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "EOF"),
        (b"\x00\xff\xfe", "Invalid JSON"),
        (b"[]", "object"),
        (b'{"study": "demo"}', "site"),
        (PLAN + b'"runs": [{"id": 3}]}', "runs.0.id"),
        (
            PLAN.replace(b"local", b"pbs") + b'"runs": []}',
            "scheduler: Input should be 'local', 'slurm', 'lsf' or 'flux'",
        ),
        (
            PLAN
            + b'"runs": [{"id": "a", "job": "j", "repeat": 1, "pairing": "r1", "scheme": "x", "path": "../../etc"}]}',
            "within the submission",
        ),
    ],
)
def test_a_file_that_is_not_a_plan(root: Path, content: bytes, message: str) -> None:
    (root / "submission.json").write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        submission.load(root, {})
    assert "\n" not in str(caught.value)
    assert str(root / "submission.json") in str(caught.value)


def stop(root: Path) -> None:
    """Return a run that was stopped after its third step."""
    path = directory(root) / "log.txt"
    lines = path.read_text().splitlines(keepends=True)[:6]
    end = {"event": "end", "state": "stopped", "steps": 3, "reason": "stopped on request, checkpoint at step 3"}
    path.write_text("".join(lines) + json.dumps(end) + "\n")
    write_marker(directory(root), "j0001-r1", 75)


@pytest.mark.parametrize(
    ("job", "marker", "state"),
    [
        ("pending", {"state": "requeued", "exit": 75}, "pending"),  # in the queue again
        ("running", {"state": "running"}, "pending"),  # the job is not finished, or has not resumed this run
        ("unknown", {"state": "requeued", "exit": 75}, "stopped"),
        ("cancelled", {"state": "requeued", "exit": 75}, "stopped"),
        ("unknown", {"state": "ended", "exit": 75}, "stopped"),  # it is not resumed
    ],
)
def test_a_stopped_run_waits_while_its_job_lives(root: Path, job: State, marker: dict[str, object], state: str) -> None:
    stop(root)
    (root / "jobs" / "j0001-r1" / "status.json").write_text(json.dumps(marker))
    verdict = run_of(root, job).verdict
    assert verdict.state == state
    assert (state in BAD, state in OPEN) == (state == "stopped", state == "pending")
    if state == "stopped":
        cancelled = "; job j0001-r1 was cancelled" if job == "cancelled" else ""
        assert verdict.reason == f"stopped on request, checkpoint at step 3{cancelled}"
        assert verdict.where == f"{directory(root) / 'log.txt'}:7"


@pytest.mark.parametrize("mark", [{"state": "running"}, {"state": "ended", "exit": 143}])
@pytest.mark.parametrize("job", ["pending", "running"])
def test_a_run_waits_when_its_job_was_requeued(root: Path, job: State, mark: dict[str, object]) -> None:
    edit_log(root, 7)
    (directory(root) / "status.json").write_text(json.dumps({**mark, "attempt": 1}))
    verdict = run_of(root, job, attempt=2).verdict
    assert (verdict.state, verdict.reason) == ("pending", "continues in attempt 2")


def test_a_run_that_ended_with_its_job_has_no_state_before_the_scheduler_reports_the_reason(root: Path) -> None:
    edit_log(root, 7)
    write_marker(directory(root), "j0001-r1", 143)
    assert run_of(root, "running", 143).state == "running"
    assert run_of(root, "timed out", 143).state == "timed out"
    assert run_of(root, "failed", 143).state == "failed"
