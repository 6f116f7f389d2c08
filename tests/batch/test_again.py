"""Tests of repeated `submit`: interrupted submissions continue, ended runs are restarted, and live runs are not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from batch_fakes import Fake, wait_for, wait_until_over

from hpcbench.batch.after import find_after
from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.cancel import cancel
from hpcbench.batch.schedulers.local import Local
from hpcbench.batch.schedulers.scheduler import Receipt
from hpcbench.batch.submit import Options, SubmitResult, submit
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.errors import UserError


def start(fake: Fake, **options: object) -> SubmitResult:
    return submit(fake.study, Options(site=str(fake.site), **options))  # type: ignore[arg-type]


def numbers(fake: Fake) -> list[str]:
    return sorted(path.name for path in (fake.directory / "results" / "fake").iterdir() if path.name.isdigit())


def test_live_runs_are_submitted_again_only_on_request(fake: Fake) -> None:
    fake.acts({"baseline": "sleep"})
    first = start(fake)
    wait_for(lambda: fake.children)
    second = start(fake)
    assert second.root == first.root
    assert second.notes[-1] == (
        "already submitted and not over: nothing was submitted (use --again to submit the study again)"
    )
    assert start(fake, sets=["train.steps=21"]).root.name == "002"  # a different study
    assert start(fake, again=True).root.name == "003"
    assert len(Ledger(first.root).submitted) == 1
    for name in ("003", "002", "001"):
        cancel(first.root.parent / name)


def test_ended_runs_are_submitted_again(fake: Fake) -> None:
    first = start(fake)
    wait_until_over(first.root)
    second = start(fake)
    assert (first.root.name, second.root.name) == ("001", "002")
    wait_until_over(second.root)


def test_a_killed_submit_is_continued(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.write_study(repeats=3)
    real, calls = Local.submit, 0

    def killed(self: Local, job: BatchJob) -> Receipt:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return real(self, job)

    monkeypatch.setattr(Local, "submit", killed)
    with pytest.raises(KeyboardInterrupt):
        start(fake)
    root = fake.directory / "results" / "fake" / "001"
    assert [job.id is None for job in Ledger(root).submitted] == [False, True]
    tracked = track(root)
    assert tracked.jobs["j0002-r2"].state is State.UNKNOWN and "answer is missing" in tracked.jobs["j0002-r2"].reason
    assert "not submitted" in tracked.jobs["j0003-r3"].reason
    monkeypatch.undo()
    monkeypatch.chdir(fake.directory)
    again = start(fake)
    assert again.root == root and "submitted 2 more jobs" in again.notes[-1]
    assert [job.id is None for job in Ledger(root).submitted] == [False, False, False]
    assert numbers(fake) == ["001"]
    over = wait_until_over(root)  # including the first job, whose queue had not been started
    assert {status.state for status in over.jobs.values()} == {State.COMPLETED}
    assert len([call for call in fake.calls if "argv" in call]) == 9


def test_two_submits_at_the_same_time_submit_once(fake: Fake) -> None:
    fake.acts({"baseline": "sleep"})
    command = [sys.executable, "-m", "hpcbench", "submit", str(fake.study), "--site", str(fake.site)]
    both = [
        subprocess.Popen(command, cwd=fake.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0, 0], outputs
    assert numbers(fake) == ["001"]
    assert sum("already submitted" in out for out, _ in outputs) == 2
    wait_for(lambda: fake.children)
    assert len([call for call in fake.calls if "run" in call]) == 1
    cancel(fake.directory / "results" / "fake" / "001")


def test_a_study_waits_for_another(fake: Fake) -> None:
    fake.acts({"baseline": "nap"})
    first = start(fake, only="scheme=baseline")
    fake.write_study(study="second")
    second = start(fake, only="scheme=mzhybrid", after="fake")
    assert f"starts after {first.root}" in second.notes
    submission = json.loads((second.root / "handed" / "0001.json").read_text(encoding="utf-8"))
    assert submission["after"] == [str(first.root / "jobs" / "j0001-r1")]
    assert {s.state for s in wait_until_over(second.root).runs.values()} == {State.COMPLETED}
    order = [call.get("run") or f"end {call['ended']}" for call in fake.calls]
    assert order == ["r1-baseline", "end r1-baseline", "r1-mzhybrid", "end r1-mzhybrid"]
    third = start(fake, only="scheme=mzhybrid", after=str(first.root), again=True)
    assert f"starts after {first.root}, which is over" in third.notes
    wait_until_over(third.root)


@pytest.mark.parametrize("any_end", [False, True])
def test_a_study_whose_dependency_fails(fake: Fake, any_end: bool) -> None:
    fake.acts({"baseline": "stop"})
    fake.write_study(walltime="6s", stop_ahead="3s")
    first = start(fake, only="scheme=baseline")
    fake.write_study(study="second")
    second = start(fake, only="scheme=mzhybrid", after="fake", after_any=any_end)
    tracked = wait_until_over(second.root)
    run = tracked.runs["r1-mzhybrid"]
    if any_end:
        assert run.state is State.COMPLETED
        return
    assert run.state is State.CANCELLED
    forerunner = f"{first.root / 'jobs' / 'j0001-r1'} had to complete before this job, but did not"
    assert run.reason == f"job j0001-r1 was cancelled ({forerunner})"
    with pytest.raises(
        UserError,
        match=r"--after: job j0001-r1 of .* has the state stopped: repeat this job with `hpcbench retry` "
        "first",
    ):
        start(fake, after="fake")


def test_dependencies_that_are_refused(fake: Fake, tmp_path: Path) -> None:
    dry = start(fake, dry_run=True).root
    with pytest.raises(UserError, match="was not submitted: submit that study first"):
        start(fake, after=str(dry))
    with pytest.raises(UserError, match="no such directory"):
        start(fake, after="nothing")
    with pytest.raises(UserError, match="are on fake, and jobs on lassen cannot wait for them"):
        find_after(str(dry), site="lassen", results=tmp_path, where="--after", any_end=False)


def test_a_dry_run_in_the_same_directory_is_not_continued(fake: Fake) -> None:
    place = fake.directory / "place"
    dry = start(fake, out=place, dry_run=True)
    real = start(fake, out=place)
    assert (dry.root.name, real.root.name) == ("001", "002")
    wait_until_over(real.root)
