"""Tests of the state of a run for each combination of facts. `status` and `report` use the same function."""

import ast
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, write

from hpcbench import contract
from hpcbench.batch.tracking.track import track
from hpcbench.collect import run_log, submission
from hpcbench.collect.find import jobs_of
from hpcbench.collect.progress import Follower
from hpcbench.contract.ending import Ending, read_ending
from hpcbench.contract.job_state import Status
from hpcbench.contract.mark import Mark
from hpcbench.contract.reason import FailureReason
from hpcbench.contract.run_state import resolve_run_state
from hpcbench.contract.state import DONE_TO_IT, OPEN, JobSummary, ResolvedState, State

HERE = Path("runs/r1")
START = json.dumps({"event": "start", "time": ""})
STEPS = [f"step {k}/6 | loss {5 - k / 9:.6f} | time 0.25 s | skipped 0 |" for k in range(1, 5)]
NAN = "step 5/6 | loss nan | time 0.25 s | skipped 0 |"


def end(state: str, reason: str = "") -> str:
    return json.dumps({"event": "end", "time": "", "state": state, "steps": 4, "seconds": 1.0, "reason": reason})


LOGS: dict[str, list[str] | None] = {
    "none": None,
    "empty": [],
    "noise": ["a launcher's word", ""],
    "begun": [START, ""],
    "steps": [START, *STEPS, ""],
    "cut": [START, *STEPS, "step 5/6 | lo"],
    "diverged": [START, *STEPS, NAN, ""],
    "completed": [START, *STEPS, end("completed"), ""],
    "nan": [START, *STEPS, NAN, end("nan", "loss is nan at step 5"), "after", ""],
    "nan, no reason": [START, *STEPS, NAN, end("nan"), ""],
    "failed": [START, *STEPS, end("failed", "replicas differ"), ""],
    "failed, no reason": [START, *STEPS, end("failed"), ""],
    "stopped": [START, *STEPS, end("stopped", "told to stop"), ""],
    "stopped, no reason": [START, *STEPS, end("stopped"), ""],
    "odd end": [START, *STEPS, end("great"), ""],
    "again": [START, *STEPS, end("failed", "of old"), START, STEPS[0], ""],
    "long": [START, *["x" * 100] * 1500, *STEPS, end("failed", "far down"), ""],
}
MARKS: dict[str, str | None] = {"none": None, "damaged": '{"state', "odd": '{"state": "done"}'}
MARKS["running"] = '{"state": "running", "attempt": 1, "start": "2026-11-21T06:30:00Z"}'
MARKS["no exit"] = '{"state": "ended", "attempt": 1}'
for code in (0, 1, 75, 124, 143):
    MARKS[str(code)] = f'{{"state": "ended", "exit": {code}, "attempt": 1, "start": "2026-11-21T06:30:00Z"}}'
_TIMES = '"start": "2026-11-21T06:30:00Z", "end": "2026-11-21T06:50:00Z"'
MARKS["limit"] = f'{{"state": "ended", "exit": 124, "limit": "walltime", "attempt": 1, {_TIMES}}}'
MARKS["run_limit"] = f'{{"state": "ended", "exit": 124, "limit": "run_limit", "attempt": 1, {_TIMES}}}'
MARKS["stopped at limit"] = f'{{"state": "ended", "exit": 75, "limit": "walltime", "attempt": 1, {_TIMES}}}'
MARKS["full"] = f'{{"state": "ended", "exit": 1, "why": "/lustre: No space left on device", "attempt": 1, {_TIMES}}}'
MARKS["shared"] = f'{{"state": "ended", "exit": 0, "attempt": 1, {_TIMES}}}'
JOBS = [Status(state, "its scheduler's word") for state in State if state not in (State.NAN, State.INCOMPLETE)]
JOBS += [
    Status(State.PENDING, "", attempt=2),
    Status(State.RUNNING, "clears up", exit=143),
    Status(State.FAILED, exit=1),
    Status(State.FAILED, "/lustre: No space left on device", exit=74),
]
UNANSWERED = Status(State.UNKNOWN, "its scheduler's word")
PARTS = 3
"""Number of submissions that share the pairs of a log and a mark. Each job meets the runs of one submission."""


def plan_runs(root: Path, names: dict[str, tuple[str, str]]) -> None:
    """Write a submission of one job whose runs have these logs and marks."""
    write(root, [Planted("baseline", 1, 0.25, 2.7)], steps=6)
    plan = json.loads((root / "submission.json").read_text())
    (job,), (run,) = plan["jobs"], plan["runs"]
    plan["runs"] = [{**run, "id": name, "path": f"runs/{name}"} for name in names]
    plan["jobs"] = [{**job, "runs": list(names)}]
    (root / "submission.json").write_text(json.dumps(plan))
    (root / "jobs" / job["id"] / "out.log").write_text("module: command not found\n\n")
    claims = root / "jobs" / job["id"] / "claims"  # the first held it until the second had run for some time
    claims.mkdir()
    for number, start in ((1, "06:20"), (2, "06:35")):
        said_then = {"holder": str(number), "process": "", "name": "", "start": f"2026-11-21T{start}:00Z"}
        (claims / str(number)).write_text(json.dumps(said_then))
        (claims / f"{number}.end").write_text("2026-11-21T06:40:00Z\n")
    for name, (log, mark) in names.items():
        directory = root / "runs" / name
        directory.mkdir()
        (directory / "err.txt").write_text("mpirun has detected an attempt to run as root.\n")
        if (lines := LOGS[log]) is not None:
            (directory / "log.txt").write_text("\n".join(lines))
        if (text := MARKS[mark]) is not None:
            (directory / "status.json").write_text(text)


def test_status_and_report_say_the_same_of_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every log meets every mark, and every job meets every log and every mark."""
    pairs = list(itertools.product(enumerate(LOGS), enumerate(MARKS)))
    parts = [{f"c{a}-{b}": (log, mark) for (a, log), (b, mark) in pairs if (a + b) % PARTS == k} for k in range(PARTS)]
    roots = [tmp_path / f"{part + 1:03}" for part in range(PARTS)]
    for root, names in zip(roots, parts, strict=True):
        plan_runs(root, names)
    seen: set[State] = set()
    messages: set[str] = set()
    meetings = [(job, number % PARTS) for number, job in enumerate(JOBS)]
    meetings += [(UNANSWERED, part) for part in range(PARTS)]  # without an answer, each log decides
    for job, part in meetings:
        root, names = roots[part], parts[part]
        monkeypatch.setattr("hpcbench.batch.tracking.track.resolve_job_state", lambda *_, job=job, **__: job)
        tracked = track(root)
        reported = submission.load(root, jobs_of(root))
        live = {run.id: run.state for run in Follower(root, lambda root=root: jobs_of(root)).poll()}
        for run in reported.runs:
            status = tracked.runs[run.id]
            assert live[run.id] is run.state, "a last line without its end may still grow: its words may differ"
            assert ResolvedState(status.state, status.reason, status.where) == run.verdict, (job, names[run.id])
            seen.add(run.state)
            messages.add(run.verdict.reason)
            assert run.state != State.COMPLETED or names[run.id][0] == "completed"
            assert run.state in OPEN or run.state == State.COMPLETED or run.verdict.reason
    assert seen == set(State)
    missing = {reason for reason in reasons() if not any(reason in message for message in messages)}
    # reasons for logs of other frameworks and of programs, which are tested in tests/programs
    assert missing == {"does not show how the run ended", "at line ", " of its log"}


def reasons() -> set[str]:
    """Return the constant text of every reason in the source code of the rules."""
    tree = ast.parse(Path(contract.run_state.__file__).read_text(encoding="utf-8"))
    documents = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in documents)
    return {node.value for node in constants if isinstance(node.value, str) and " " in node.value.strip()}


@pytest.mark.parametrize("name", LOGS)
def test_the_end_of_a_log_is_read_as_its_whole_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log.txt"
    if (lines := LOGS[name]) is None:
        assert read_ending(path) is None
        return
    path.write_text("\n".join(lines))
    assert repr(read_ending(path)) == repr(run_log.read(path).ending)  # NaN is not equal to itself


def test_a_long_log_is_counted_only_where_a_message_may_name_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("\n".join([START, *["x" * 100] * 1500, *STEPS, end("completed"), ""]))
    ending = read_ending(path)
    assert ending is not None and (ending.state, ending.step, ending.begun) == ("completed", 4, True)
    os.truncate(path, path.stat().st_size - 9)
    ending = read_ending(path)
    assert ending is not None and (ending.lines, ending.state, ending.cut, ending.step) == (1506, None, True, 4)


DONE = Ending(Path("log.txt"), 9, True, "completed", end_line=9, step=6, steps=6, loss=2.0, step_line=8)
MIDDLE = Ending(Path("log.txt"), 8, True, step=4, steps=6, loss=3.0, step_line=8)
STOPPED = Ending(Path("log.txt"), 9, True, "stopped", "told to", end_line=9, step=4, steps=6, loss=2.0, step_line=8)
WAS_NAN = Ending(Path("log.txt"), 9, True, "nan", "loss is nan", end_line=9, step=4, steps=6, step_line=8)
RUNS = Mark("running")
LIMITED = Mark("ended", 1, 75, limit="walltime")


def ended(status: int | None) -> Mark:
    return Mark("ended", 1, status)


@pytest.mark.parametrize(
    ("mark", "log", "job", "state", "reason"),
    [
        (None, None, JobSummary("j", State.PENDING, reason="Resources"), State.PENDING, "Resources"),
        (None, None, JobSummary("j", State.RUNNING, reason="by its marks"), State.PENDING, ""),
        (None, None, JobSummary("j", State.SUSPENDED, reason="SSUSP"), State.PENDING, "SSUSP"),
        (
            None,
            None,
            JobSummary("j", State.COMPLETED, 0),
            State.LOST,
            "job j ended (exit status 0) before this run began",
        ),
        (
            None,
            None,
            JobSummary("j", State.FAILED, reason="exit 1"),
            State.LOST,
            "job j ended (exit 1) before this run began",
        ),
        (None, None, JobSummary("j", State.TIMED_OUT, reason="TIMEOUT"), State.TIMED_OUT, "job j: timed out (TIMEOUT)"),
        (
            None,
            None,
            JobSummary("j", State.UNKNOWN, reason="no answer"),
            State.UNKNOWN,
            "the state of job j is unknown: no answer",
        ),
        (None, None, JobSummary("j", State.STOPPED, reason="told to"), State.STOPPED, "told to"),
        (None, None, JobSummary("j", State.LOST, reason="forgotten"), State.LOST, "forgotten"),
        (RUNS, MIDDLE, JobSummary("j", State.RUNNING), State.RUNNING, ""),
        (
            RUNS,
            MIDDLE,
            JobSummary("j", State.FAILED, 1),
            State.LOST,
            "without a status file of this run after step 4 of 6",
        ),
        (RUNS, MIDDLE, JobSummary("j", State.NODE_FAILED, reason="NODE_FAIL"), State.NODE_FAILED, "NODE_FAIL"),
        (RUNS, MIDDLE, JobSummary("j", State.UNKNOWN, reason="no answer"), State.INCOMPLETE, "no answer"),
        (RUNS, None, JobSummary("j", State.UNKNOWN, reason="no answer"), State.UNKNOWN, "no answer"),
        (RUNS, MIDDLE, JobSummary("j", State.PENDING, attempt=2), State.PENDING, "attempt 2"),
        (ended(0), DONE, JobSummary("j", State.FAILED, 1), State.COMPLETED, ""),
        (ended(0), DONE, JobSummary("j", State.PENDING, attempt=2), State.COMPLETED, ""),
        (ended(0), MIDDLE, JobSummary("j", State.COMPLETED, 0), State.UNKNOWN, "its log has no end event"),
        (ended(1), WAS_NAN, JobSummary("j", State.FAILED, 1), State.NAN, "loss is nan"),
        (ended(1), WAS_NAN, JobSummary("j", State.CANCELLED), State.NAN, "loss is nan"),
        (ended(1), MIDDLE, JobSummary("j", State.FAILED, 1), State.FAILED, "the words, after step 4 of 6"),
        (
            ended(139),
            DONE,
            JobSummary("j", State.FAILED, 1),
            State.FAILED,
            "all steps were completed, but then the run failed: the words",
        ),
        (
            ended(143),
            MIDDLE,
            JobSummary("j", State.CANCELLED),
            State.CANCELLED,
            "job j was cancelled after step 4 of 6",
        ),
        (ended(137), MIDDLE, JobSummary("j", State.OUT_OF_MEMORY, reason="OOM"), State.OUT_OF_MEMORY, "OOM"),
        (ended(143), MIDDLE, JobSummary("j", State.RUNNING, 143, "clears up"), State.RUNNING, "clears up"),
        (ended(124), MIDDLE, JobSummary("j", State.FAILED, 1), State.TIMED_OUT, "its own time limit"),
        (
            ended(75),
            STOPPED,
            JobSummary("j", State.TIMED_OUT, reason="TIMEOUT"),
            State.STOPPED,
            "j: timed out (TIMEOUT)",
        ),
        (ended(75), STOPPED, JobSummary("j", State.FAILED, 75), State.STOPPED, "told to"),
        (ended(75), STOPPED, JobSummary("j", State.PENDING, attempt=2), State.PENDING, "attempt 2"),
        (
            LIMITED,
            STOPPED,
            JobSummary("j", State.FAILED, 75),
            State.STOPPED,
            "reached its part of the job's walltime: told to",
        ),
        (
            LIMITED,
            STOPPED,
            JobSummary("j", State.RUNNING),
            State.PENDING,
            "reached its part of the job's walltime: told to",
        ),
        (
            LIMITED,
            MIDDLE,
            JobSummary("j", State.RUNNING),
            State.STOPPED,
            "reached its part of the job's walltime: stopped on request",
        ),
        (
            ended(75),
            MIDDLE,
            JobSummary("j", State.FAILED, 75),
            State.STOPPED,
            "stopped on request (exit status 75) after step 4 of 6",
        ),
        (ended(75), MIDDLE, JobSummary("j", State.PREEMPTED), State.PREEMPTED, "after step 4 of 6"),
        (ended(None), MIDDLE, JobSummary("j", State.FAILED, 1), State.UNKNOWN, "contains no exit status"),
        (Mark(""), MIDDLE, JobSummary("j", State.FAILED, 1), State.UNKNOWN, "cannot be read"),
        (Mark(""), None, JobSummary("j", State.PENDING), State.PENDING, ""),
    ],
)
def test_each_combination(mark: Mark | None, log: Ending | None, job: JobSummary, state: State, reason: str) -> None:
    resolved = resolve_run_state(HERE, mark, job, log, FailureReason("the words", "err.txt:1"))
    assert (resolved.state, reason in resolved.reason) == (state, True), resolved


def test_only_a_log_that_says_so_is_a_success() -> None:
    marks: list[Mark | None] = [None, Mark(""), RUNS, *(ended(status) for status in (None, 0, 1, 75, 137))]
    logs = [None, DONE, MIDDLE, STOPPED, WAS_NAN]
    for mark, log, state in itertools.product(marks, logs, State):
        resolved = resolve_run_state(HERE, mark, JobSummary("j", state), log)
        assert resolved.state is not State.COMPLETED or log is DONE
        if mark == ended(1) and state in DONE_TO_IT:
            assert resolved.state in (State.FAILED, State.NAN, State.STOPPED)


def test_a_state_is_its_word() -> None:
    state: Any = State.TIMED_OUT
    assert (str(state), f"{state}", json.dumps(state), {state: 1}["timed out"]) == ("timed out",) * 2 + (
        '"timed out"',
        1,
    )
