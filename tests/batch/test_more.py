"""Tests of repeats that are added to a submission: cells get new seeds, and no job is submitted twice."""

import json
from pathlib import Path

import pytest
from batch_fakes import Fake, wait_for, wait_until_over

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.cancel import cancel
from hpcbench.batch.rewrite_jobs import rewrite_jobs
from hpcbench.batch.schedulers.local import Local
from hpcbench.batch.schedulers.scheduler import Receipt
from hpcbench.batch.submit import Options, SubmitResult, submit
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.contract.state import State
from hpcbench.contract.submission import read_submission
from hpcbench.errors import UserError


def start(fake: Fake, **options: object) -> SubmitResult:
    return submit(fake.study, Options(site=str(fake.site), **options))  # type: ignore[arg-type]


def seeds(root: Path) -> dict[str, int]:
    return {
        path.parent.name: json.loads(path.read_text())["train"]["seed"] for path in (root / "runs").glob("*/run.json")
    }


def test_repeats_are_added_with_new_seeds_in_the_same_pairs(fake: Fake) -> None:
    root = start(fake).root
    wait_until_over(root)
    calls = len(fake.calls)
    added = start(fake, more=2)
    assert added.root == root and [path.name for path in root.parent.iterdir() if path.name.isdigit()] == ["001"]
    assert added.notes[0].startswith("repeats 2 to 3 were added to ")
    schemes = {"baseline", "naive-zfp8", "mzhybrid"}
    plan = read_submission(root)
    assert {run.id for run in plan.runs} == {f"r{k}-{scheme}" for k in (1, 2, 3) for scheme in schemes}
    assert {run.pairing for run in plan.runs} == {"r1", "r2", "r3"} and plan.repeats == 3
    assert [job.id for job in plan.jobs] == ["j0001-r1", "j0002-r2", "j0003-r3"]
    first = seeds(root)["r1-baseline"]
    assert {name: seed - first for name, seed in seeds(root).items()} == {
        f"r{k}-{scheme}": k - 1 for k in (1, 2, 3) for scheme in schemes
    }
    over = wait_until_over(root)
    assert {status.state for status in over.runs.values()} == {State.COMPLETED}
    assert sum("argv" in call for call in fake.calls[calls:]) == 6, "earlier runs did not run again"
    assert [job.jobs for job in Ledger(root).submitted] == [["j0001-r1"], ["j0002-r2"], ["j0003-r3"]]
    rewrite_jobs(root, plan, ["j0003-r3"], [], updates_site=False)  # like a script that `retry` writes again
    assert "r3-baseline" in (root / "jobs" / "j0003-r3" / "job.sh").read_text()


def test_the_same_command_twice_adds_once_until_the_added_repeats_are_over(fake: Fake) -> None:
    root = start(fake).root
    wait_until_over(root)
    fake.acts({"baseline": "sleep"})
    start(fake, more=1)
    wait_for(lambda: fake.children)
    second = start(fake, more=1)
    assert second.notes == [
        "the most recently added repeats have not ended (job j0002-r2): nothing was added (use --again to add more "
        "repeats anyway)"
    ]
    assert len(Ledger(root).submitted) == len(read_submission(root).jobs) == 2
    start(fake, more=1, again=True)
    assert [job.id for job in read_submission(root).jobs] == ["j0001-r1", "j0002-r2", "j0003-r3"]
    cancel(root)


def test_a_killed_addition_is_continued_and_not_made_again(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    root = start(fake).root
    wait_until_over(root)
    real, calls = Local.submit, 0

    def killed(self: Local, job: BatchJob) -> Receipt:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return real(self, job)

    with monkeypatch.context() as patch:
        patch.setattr(Local, "submit", killed)
        with pytest.raises(KeyboardInterrupt):
            start(fake, more=3)
    again = start(fake, more=3)
    assert "submitted 2 more jobs" in again.notes[0] and again.notes[1].startswith("no repeats were added")
    assert [job.id for job in read_submission(root).jobs] == [f"j000{k}-r{k}" for k in (1, 2, 3, 4)]
    over = wait_until_over(root)
    assert {status.state for status in over.runs.values()} == {State.COMPLETED}
    assert sum("argv" in call for call in fake.calls) == 12


def test_a_refused_addition_leaves_the_submission_as_it_was(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    root = start(fake).root
    wait_until_over(root)
    before = (read_submission(root), sorted(root.glob("[jr]*/*")))

    def refuse(*_: object) -> list[str]:
        raise UserError("the queue is closed")

    with monkeypatch.context() as patch:
        patch.setattr(Local, "preflight", refuse)
        with pytest.raises(UserError, match="the queue is closed"):
            start(fake, more=1)
    assert (read_submission(root), sorted(root.glob("[jr]*/*"))) == before
    (root / "jobs" / "j0002-r2").mkdir()  # the state after a command was killed before the plan contained the job
    assert start(fake, more=1).notes[0].startswith("repeat 2 was added")
    wait_until_over(root)


def test_repeats_are_added_only_to_the_same_study(fake: Fake) -> None:
    with pytest.raises(UserError, match="does not exist: submit the study without --more first"):
        start(fake, more=1)
    root = start(fake).root
    wait_until_over(root)
    start(fake, dry_run=True)
    refused: list[tuple[dict[str, object], str]] = [
        ({"sets": ["train.steps=21"]}, "has no submission of this study with the same site, options and version"),
        ({"dry_run": True}, "cannot be used with --dry-run"),
        ({"after": "001"}, "cannot be used with --after"),
    ]
    for options, message in refused:
        with pytest.raises(UserError, match=f"--more: .*{message}"):
            start(fake, more=1, **options)
    assert len(read_submission(root).jobs) == 1


def test_only_the_chosen_schemes_are_repeated(fake: Fake) -> None:
    only = "scheme=baseline|mzhybrid"
    root = start(fake, only=only).root
    wait_until_over(root)
    start(fake, only=only, more=1)
    assert [run.id for run in read_submission(root).runs if run.repeat == 2] == ["r2-mzhybrid", "r2-baseline"]
    wait_until_over(root)
    with pytest.raises(UserError, match="has no submission"):
        start(fake, only="repeat=1", more=1)
