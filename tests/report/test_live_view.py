"""Tests of the live view, with a controlled clock and scheduler."""

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from io import StringIO
from pathlib import Path

import pytest
from planted_results import Planted, write, write_marker
from rich.console import Console

from hpcbench.collect.progress import Follower, RunProgress
from hpcbench.collect.run_log import LogReader
from hpcbench.console import span
from hpcbench.contract.reason import FailureReason, diagnose
from hpcbench.contract.state import JobSummary, ResolvedState, State
from hpcbench.errors import UserError
from hpcbench.report.live import follow, render

SCHEMES = ("baseline", "mzhybrid")


class Stage:
    """A submission whose logs grow line by line, with its own clock."""

    def __init__(self, root: Path) -> None:
        self.root = write(root, [Planted(scheme, 1, 0.25, 2.7) for scheme in SCHEMES])
        self.lines: dict[str, list[str]] = {}
        self.job = State.PENDING
        self.exit: int | None = None
        self.attempt = 1
        self.time = 0.0
        self.script: list[Callable[[], None]] = []
        for scheme in SCHEMES:
            self.lines[scheme] = (self.run(scheme) / "log.txt").read_text().splitlines(keepends=True)
            (self.run(scheme) / "log.txt").unlink()
            (self.run(scheme) / "status.json").unlink()
        (root / "jobs/j0001-r1/status.json").unlink()

    def run(self, scheme: str) -> Path:
        return self.root / "runs" / f"r1-{scheme}"

    def start(self, scheme: str) -> None:
        self.job = State.RUNNING
        (self.run(scheme) / "status.json").write_text('{"state": "running", "start": "2026-11-21T06:30:00Z"}')
        (self.run(scheme) / "log.txt").write_text("")

    def grow(self, scheme: str, upto: int) -> None:
        (self.run(scheme) / "log.txt").write_text("".join(self.lines[scheme][:upto]))

    def end(self, scheme: str, status: int = 0) -> None:
        write_marker(self.run(scheme), "j0001-r1", status)

    def end_job(self, status: int) -> None:
        self.job, self.exit = State.FAILED if status else State.COMPLETED, status

    def jobs(self) -> Mapping[str, JobSummary]:
        return {"j0001-r1": JobSummary("j0001-r1", self.job, self.exit, attempt=self.attempt)}

    def sleep(self, seconds: float) -> None:
        self.time += 5
        if self.script:
            self.script.pop(0)()
        assert self.time < 1000, "the view does not end"

    def follow(self, terminal: bool = False) -> tuple[int, str]:
        out = StringIO()
        console = Console(file=out, width=120, height=30, force_terminal=terminal, highlight=False, color_system=None)
        status = follow(self.root, console=console, jobs=self.jobs, clock=lambda: self.time, sleep=self.sleep)
        return status, out.getvalue()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "001")


def whole_story(stage: Stage, status: int) -> None:
    stage.script = [
        lambda: stage.start("baseline"),
        lambda: stage.grow("baseline", 5),
        lambda: stage.grow("baseline", 9),
        lambda: stage.grow("baseline", 99),
        lambda: stage.end("baseline"),
        lambda: stage.start("mzhybrid"),
        lambda: stage.grow("mzhybrid", 99 if status == 0 else 9),
        lambda: stage.end("mzhybrid", status),
        lambda: stage.end_job(status),
    ]


def test_plain_lines_tell_the_story(stage: Stage) -> None:
    whole_story(stage, 0)
    status, out = stage.follow()
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "[ 0:05] r1-baseline: started (1 of 2)"
    assert lines[1].startswith("[ 0:15] r1-baseline: step 6/12, loss 4.1000, 32.00 samples/s, 0:02 left")
    assert "[ 0:25] r1-baseline: completed in 1:00, loss (valid) 2.7000" in lines
    assert lines[-1] == "2 runs: 2 completed; 0:45 elapsed"
    assert "\x1b" not in out


def test_a_killed_run_is_told_with_its_reason(stage: Stage) -> None:
    whole_story(stage, 137)
    status, out = stage.follow()
    assert status == 1
    assert "r1-mzhybrid: failed: a rank was killed by signal 9 (KILL), exit status 137, after step 6 of 12" in out
    assert out.splitlines()[-1] == "2 runs: 1 completed, 1 failed; 0:45 elapsed"


def test_on_a_terminal_a_row_a_run(stage: Stage) -> None:
    whole_story(stage, 0)
    status, out = stage.follow(terminal=True)
    assert status == 0
    assert "running" in out and "6/12" in out and "2 runs: 2 completed" in out


def test_a_lost_queue_ends_the_view(stage: Stage) -> None:
    def lose() -> None:
        stage.job = "lost"

    stage.script = [lambda: stage.start("baseline"), lambda: stage.grow("baseline", 9), lose]
    status, out = stage.follow()
    assert status == 1
    assert "r1-baseline: lost: the processes of job j0001-r1 are gone and left no status file after step 6 of 12" in out
    assert "r1-mzhybrid: lost" in out


def test_a_scheduler_that_gives_no_answer_is_waited_for(stage: Stage) -> None:
    def silence() -> None:
        stage.job = "unknown"

    def answer() -> None:
        stage.job = "running"

    whole_story(stage, 0)
    stage.script[3:3] = [silence, lambda: None, answer]
    assert stage.follow()[0] == 0
    stage.script = []


def test_a_scheduler_that_never_answers_again(stage: Stage) -> None:
    stage.job = "unknown"
    status, _ = stage.follow()
    assert status == 1
    assert 60 <= stage.time < 90


def test_ctrl_c_says_that_the_jobs_go_on(stage: Stage) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    stage.script = [lambda: stage.start("baseline"), interrupt]
    status, out = stage.follow()
    assert status == 1
    assert f"The jobs continue: hpcbench status {stage.root}" in out.replace("\n", "")


def test_only_what_is_new_is_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.start("baseline")
    follower = Follower(stage.root, stage.jobs, clock=lambda: stage.time)
    stage.grow("baseline", 9)
    assert follower.poll()[0].step == 6
    fed: list[int] = []
    feed = LogReader.feed
    monkeypatch.setattr(
        "hpcbench.collect.run_log.LogReader.feed", lambda self, chunk: (fed.append(len(chunk)), feed(self, chunk))[1]
    )
    follower.poll()
    assert fed == []
    stage.grow("baseline", 10)
    assert follower.poll()[0].step == 7
    assert fed == [len(stage.lines["baseline"][9])]
    # A rewritten log is read again.
    stage.grow("baseline", 5)
    assert follower.poll()[0].step == 2


def test_a_failed_run_is_looked_through_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.start("baseline")
    stage.grow("baseline", 9)
    stage.end("baseline", 1)
    (stage.run("baseline") / "err.txt").write_text("ValueError: one\n")
    looked: list[Path] = []

    def noted(status: int | None, errors: Path, log: Path) -> FailureReason:
        looked.append(log)
        return diagnose(status, errors, log)

    monkeypatch.setattr("hpcbench.contract.run_state.diagnose", noted)
    follower = Follower(stage.root, stage.jobs, clock=lambda: stage.time)
    assert ["ValueError: one" in follower.poll()[0].verdict.reason for _ in range(3)] == [True] * 3
    assert len(looked) == 1
    # Late output is read when the log grows, and when the job has ended.
    (stage.run("baseline") / "err.txt").write_text("ValueError: two\n")
    stage.grow("baseline", 10)
    assert "ValueError: two" in follower.poll()[0].verdict.reason
    (stage.run("baseline") / "err.txt").write_text("ValueError: three\n")
    stage.end_job(1)
    stage.time += 60
    assert "ValueError: three" in follower.poll()[0].verdict.reason


def test_time_left_by_hand(stage: Stage) -> None:
    stage.start("baseline")
    now = datetime(2026, 11, 21, 6, 30, 10, tzinfo=timezone.utc)
    follower = Follower(stage.root, stage.jobs, now=lambda: now, clock=lambda: stage.time)
    stage.grow("baseline", 11)  # eight steps with a median of 0.25 s
    runs = follower.poll()
    assert runs[0].left == pytest.approx(4 * 0.25)
    assert runs[0].elapsed == 10
    # The second run will take as long as the first: 10 s elapsed and one run remaining.
    assert follower.left(runs) == pytest.approx(1 + 11)


def test_more_runs_than_rows() -> None:
    runs = [RunProgress(f"r{k}", "j", ResolvedState("completed"), 5, 5, 3.0) for k in range(50)]
    runs += [RunProgress("bad", "j", ResolvedState("failed", "it broke", "log.txt:3"), 2, 5)]
    runs += [RunProgress("now", "j", ResolvedState("running"), 3, 5, 3.0, (None, None, 20.0, 2.0))]
    runs += [RunProgress(f"p{k}", "j", ResolvedState("pending")) for k in range(950)]
    console = Console(file=StringIO(), width=100, record=True)
    console.print(render(runs, 3700, 60, 14, 100))
    out = console.export_text()
    assert "20.00 tokens/s/rank" in out and "now" in out and "bad: failed: it broke (log.txt:3)" in out
    assert "... and 993 more" in out
    assert "1002 runs: 950 pending, 50 completed, 1 failed, 1 running; 1:01:40 elapsed, about 1:00 left" in out
    assert len(out.splitlines()) < 16


def test_a_reason_is_shown_with_its_remedy_in_a_narrow_window() -> None:
    reason = "the scheduler refused the job because of its account, which is unknown here: set account: in the study"
    runs = [RunProgress(f"r{k}", "j", ResolvedState("failed", reason), 2, 5) for k in range(20)]
    console = Console(file=StringIO(), width=80, height=24, record=True)
    console.print(render(runs, 60, None, 24, 80))
    out = console.export_text()
    assert " ".join(out.split()).count("set account: in the study") == 3
    assert "20 runs: 20 failed" in out
    assert len(out.splitlines()) <= 24


def test_the_time_starts_with_the_first_run_and_not_with_the_view(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.start("baseline")
    stage.grow("baseline", 9)
    now = datetime(2026, 11, 21, 6, 40, 0, tzinfo=timezone.utc)
    follower = Follower(stage.root, stage.jobs, now=lambda: now, clock=lambda: stage.time)
    assert follower.since_start(follower.poll()) == 600
    for scheme in SCHEMES:
        stage.grow(scheme, 99)
        stage.end(scheme)
    stage.end_job(0)
    status, out = stage.follow()
    assert (status, out.splitlines()[-1]) == (0, "2 runs: 2 completed; 1:00 elapsed")


def test_a_run_that_waits_to_continue_is_named_and_named_again(stage: Stage) -> None:
    def requeue() -> None:
        stage.job = State.PENDING
        write_marker(stage.run("baseline"), "j0001-r1", 75)
        stage.attempt = 2

    def go_on() -> None:
        stage.attempt = 1
        whole_story(stage, 0)

    stage.script = [lambda: stage.start("baseline"), lambda: stage.grow("baseline", 9), requeue]
    stage.script += [lambda: None] * 30 + [go_on]
    status, out = stage.follow()
    waits = [line for line in out.splitlines() if "is waiting to continue" in line or "still waits" in line]
    assert status == 0
    assert waits[0] == "[ 0:15] r1-baseline: is waiting to continue: continues in attempt 2"
    assert [line.split("]")[1] for line in waits[1:]] == [" r1-baseline: still waits: continues in attempt 2"] * 2


def test_spans() -> None:
    assert [span(s) for s in (None, 0, 59.6, 600, 3661)] == ["-", "0:00", "1:00", "10:00", "1:01:01"]


def test_nothing_to_follow(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"submission\.json: cannot be read"):
        follow(tmp_path)


def test_lines_say_when_nothing_starts(stage: Stage) -> None:
    """The screen must not be empty if all of a user's pending jobs belong to another submission."""
    stage.script = [lambda: None] * 6 + [lambda: stage.start("baseline")]
    stage.script += [lambda: stage.end("baseline"), lambda: stage.end_job(1)]
    _, out = stage.follow()
    output, *others = [line for line in out.splitlines() if "no job has started yet" in line]
    assert output.startswith("[ 0:10]") and not others


def test_runs_that_failed_at_once_have_started(stage: Stage) -> None:
    """The job continues after both runs have failed unnoticed."""

    def both() -> None:
        for scheme in SCHEMES:
            stage.start(scheme)
            stage.end(scheme, 1)

    stage.script = [both, *[lambda: None] * 4, lambda: stage.end_job(1)]
    status, out = stage.follow()
    assert status == 1
    assert "no job has started yet" not in out
    assert out.count(": failed") == 2


@pytest.mark.parametrize("stale", [State.RUNNING, State.PENDING, State.UNKNOWN])
def test_an_end_is_not_left_for_an_older_answer(stage: Stage, stale: State) -> None:
    """A run is cancelled with its job. Afterwards, the scheduler once more reports the job as running."""

    def cancelled() -> None:
        stage.end("baseline", 143)
        stage.job = State.CANCELLED

    def older() -> None:
        stage.job = stale

    def again() -> None:
        stage.job = State.CANCELLED

    stage.script = [lambda: stage.start("baseline"), lambda: stage.grow("baseline", 8), cancelled]
    follower = Follower(stage.root, stage.jobs, clock=lambda: stage.time)
    seen = []
    for step in (*stage.script, older, again):
        step()
        stage.time += 5
        seen.append(follower.poll()[0].state)
    assert seen[2:] == [State.CANCELLED] * 3
