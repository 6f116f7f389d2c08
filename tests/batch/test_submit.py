"""Tests of the files that submit writes or removes."""

import json
import os
import random
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from batch_fakes import Fake, wait_until_over

from hpcbench.batch import write_submission as module
from hpcbench.batch.cancel import cancel
from hpcbench.batch.find_submission import find_root
from hpcbench.batch.resume import find_unfinished
from hpcbench.batch.submit import Options, submit
from hpcbench.contract.submission import read_submission
from hpcbench.errors import UserError


def everything(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_a_dry_run_writes_all_and_starts_nothing(fake: Fake) -> None:
    submission = submit(fake.study, Options(site=str(fake.site), dry_run=True, sets=["train.steps=30"]))
    root = submission.root
    assert root == fake.directory / "results" / "fake" / "dry-run" / "001"
    names = ["r1-baseline", "r1-naive-zfp8", "r1-mzhybrid"]
    files = {
        "study.yaml",
        "study.set.json",
        "site.json",
        "submission.json",
        "jobs/j0001-r1/job.sh",
        "jobs/j0001-r1/reserve",
        *(f"runs/{n}/run.json" for n in names),
    }
    assert {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()} == files
    assert (root / "study.yaml").read_bytes() == fake.study.read_bytes()
    assert json.loads((root / "study.set.json").read_text()) == ["train.steps=30"]
    data = json.loads((root / "submission.json").read_text())
    assert data.pop("time").endswith("Z")
    assert re.fullmatch(r"fake-[0-9a-f]{6}", data.pop("name")) and len(data.pop("digest")) == 64
    assert data == {
        "schema": 1,
        "version": "1.0.0",
        "study": "fake",
        "site": "fake",
        "scheduler": "local",
        "dry_run": True,
        "baseline": {"scheme": "baseline"},
        "criteria": {"speed_margin": 0.01, "loss_margin": 0.01},
        "thresholds": [],
        "steps": 30,
        "repeats": 1,
        "requeue": 0,
        "root": str(root),
        "site_file": str(fake.site),
        "study_file": str(fake.study),
        "jobs": [
            {
                "id": "j0001-r1",
                "script": "jobs/j0001-r1/job.sh",
                "runs": names,
                "walltime": None,
                "stop_ahead": 120,
            }
        ],
        "bundles": [{"label": "j0001-r1", "script": "jobs/j0001-r1/job.sh", "jobs": ["j0001-r1"], "array": False}],
        "runs": [
            {"id": n, "job": "j0001-r1", "repeat": 1, "pairing": "r1", "cell": {}, "scheme": n[3:], "path": f"runs/{n}"}
            for n in names
        ],
    }
    assert fake.calls == []


def test_numbers_continue_from_the_highest(fake: Fake) -> None:
    out = fake.directory / "out"
    (out / "007").mkdir(parents=True)
    (out / "notes").write_text("mine", encoding="utf-8")
    roots = [submit(fake.study, Options(site=str(fake.site), dry_run=True, out=out)).root.name for _ in range(2)]
    assert roots == ["008", "009"]


@pytest.mark.parametrize(
    ("pairing", "jobs"),
    [
        ("allocation", [["r1-baseline", "r1-mzhybrid"], ["r2-mzhybrid", "r2-baseline"]]),
        ("none", [["r1-baseline"], ["r1-mzhybrid"], ["r2-mzhybrid"], ["r2-baseline"]]),
    ],
)
def test_pairing_determines_which_runs_share_a_job(fake: Fake, pairing: str, jobs: list[list[str]]) -> None:
    fake.write_study(pairing=pairing, repeats=2, matrix={"scheme": ["baseline", "mzhybrid"]})
    submission = submit(fake.study, Options(site=str(fake.site), dry_run=True))
    assert [job.runs for job in submission.jobs] == jobs


def test_cells_never_share_a_job(fake: Fake) -> None:
    fake.write_study(repeats=2, matrix={"train.micro_batch": [1, 2], "scheme": ["baseline", "mzhybrid"]})
    submission = submit(fake.study, Options(site=str(fake.site), dry_run=True))
    assert [job.runs for job in submission.jobs] == [
        ["r1-micro_batch1-baseline", "r1-micro_batch1-mzhybrid"],
        ["r1-micro_batch2-baseline", "r1-micro_batch2-mzhybrid"],
        ["r2-micro_batch1-mzhybrid", "r2-micro_batch1-baseline"],
        ["r2-micro_batch2-mzhybrid", "r2-micro_batch2-baseline"],
    ]
    data = json.loads((submission.root / "submission.json").read_text())
    assert [run["cell"] for run in data["runs"]][:4] == [{"train.micro_batch": 1}] * 2 + [{"train.micro_batch": 2}] * 2


@pytest.mark.parametrize(
    ("only", "runs"),
    [
        ("scheme=mzhybrid", ["r1-mzhybrid", "r2-mzhybrid"]),
        ("scheme=*z*,repeat=2", ["r2-naive-zfp8", "r2-mzhybrid"]),
        ("r1-*", ["r1-baseline", "r1-naive-zfp8", "r1-mzhybrid"]),
        ("r?-baseline , repeat = 1", ["r1-baseline"]),
    ],
)
def test_only_some_runs(fake: Fake, only: str, runs: list[str]) -> None:
    fake.write_study(repeats=2)
    submission = submit(fake.study, Options(site=str(fake.site), dry_run=True, only=only))
    assert [run for job in submission.jobs for run in job.runs] == runs


@pytest.mark.parametrize(
    ("only", "says"),
    [
        ("shceme=x", "did you mean 'scheme'?"),
        ("nodes=1", "unknown key"),
        ("scheme=none-such", "matches no run"),
        ("", "matches no run"),
        ("__import__('os').system('touch pwned')", "matches no run"),
        ("repeat=1; touch pwned", "matches no run"),
    ],
)
def test_expressions_that_name_nothing_are_refused(fake: Fake, only: str, says: str) -> None:
    with pytest.raises(UserError, match=r"^--only ") as caught:
        submit(fake.study, Options(site=str(fake.site), dry_run=True, only=only))
    assert says in str(caught.value)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), UserError("x")])
@pytest.mark.parametrize("after", [0, 2, 6])
def test_no_incomplete_submission_is_left(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, error: BaseException, after: int
) -> None:
    before = everything(fake.directory)
    calls = 0
    real = module.write_json

    def failing(path: Path, data: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise error
        real(path, data)

    fake.write_study(repeats=2)
    monkeypatch.setattr(module, "write_json", failing)
    with pytest.raises(type(error)):
        submit(fake.study, Options(site=str(fake.site)))
    assert everything(fake.directory) == before


def test_a_value_that_a_script_cannot_contain_leaves_no_files(fake: Fake) -> None:
    before = everything(fake.directory)
    with pytest.raises(UserError, match="line break"):
        submit(fake.study, Options(site=str(fake.site), out=fake.directory / "a\nb"))
    assert everything(fake.directory) == before


@pytest.mark.parametrize("existing", [True, False])
def test_a_directory_that_takes_no_files_is_refused(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    """Root can write everywhere except to a read-only file system, so the file system's errors are simulated."""
    out = fake.directory / "results"
    if existing:
        out.mkdir()
        monkeypatch.setattr("os.access", lambda path, mode: path != out)
    else:
        monkeypatch.setattr(Path, "mkdir", lambda *_, **__: exec("raise OSError(30, 'Read-only file system')"))
    with pytest.raises(
        UserError, match=r"results: (is not writable|Read-only file system): choose one of your directories with --out"
    ):
        submit(fake.study, Options(site=str(fake.site), dry_run=True, out=out))


def test_the_scheduler_is_checked_before_anything_is_written(fake: Fake) -> None:
    lock = Path(tempfile.gettempdir()) / f"hpcbench-{os.getuid()}"
    lock.symlink_to(fake.directory)
    with pytest.raises(UserError, match="belongs to another user"):
        submit(fake.study, Options(site=str(fake.site)))
    assert not (fake.directory / "results").exists()


SITE = {"max_nodes": 2, "max_walltime": "1h"}


@pytest.mark.parametrize(
    ("data", "size", "says"),
    [
        ({"path": "gone.txt"}, None, r"study.yaml:\d+: data.path: .*gone.txt is not a file"),
        ({"path": "~/gone.txt"}, None, r"study.yaml:\d+: data.path: .*/gone.txt is not a file"),
        (
            {"path": "t.txt"},
            300,
            r"study.yaml:\d+: data.path: the \w+ split of .*t.txt has \d+ bytes, which is too short",
        ),
        ({"path": "t.txt", "valid_fraction": 0.5}, 20 << 16, None),
    ],
)
def test_a_dry_run_reports_what_submit_refuses(fake: Fake, data: dict[str, Any], size: int | None, says: str) -> None:
    """Without `check`, a note is printed, because the files may be on another machine. With `check`, submit fails."""
    fake.write_study(data={"source": "file", **data}, layout={}, train={"steps": 20, "global_batch": 64})
    if size is not None:
        (fake.directory / "t.txt").write_bytes(random.Random(1).randbytes(size))
    site = str(fake.site)
    notes = "\n".join(submit(fake.study, Options(site=site, dry_run=True)).notes)
    assert ("submit would refuse this study here" in notes) is (says is not None)
    if says is None:
        submit(fake.study, Options(site=site, dry_run=True, check=True))
        return
    assert re.search(says, notes)
    for options in (Options(site=site, dry_run=True, check=True), Options(site=site)):
        with pytest.raises(UserError, match=says):
            submit(fake.study, options)


@pytest.mark.parametrize(
    ("study", "says"),
    [
        ({"nodes": 4, "walltime": "30m"}, "nodes: 4: queue q of fake allows at most 2: use at most 2"),
        ({"nodes": 2, "walltime": "61m"}, "walltime: 1h1m at 2 nodes: queue q of fake allows 1h: shorten it to 1h"),
        ({"nodes": 2}, "walltime: is required on"),
        ({"nodes": 2, "walltime": "1:30"}, "1:30 may mean 1 hours 30 minutes (LSF) or 1 minutes 30 seconds (Slurm)"),
        ({"nodes": 2, "walltime": "90"}, "90 has no unit"),
        ({"nodes": 2, "walltime": "1h", "queue": "p"}, "queue: fake has no queue 'p'"),
        ({"nodes": 1, "walltime": "1h", "ranks_per_node": 16}, "16 ranks, but a node of fake has 4 usable cores"),
        ({"nodes": 2, "walltime": "1h", "data": {"source": "file", "path": "gone.txt"}}, "gone.txt is not a file"),
        ({"nodes": 2, "walltime": "1h", "data": {"source": "megatron", "path": "pair.bin"}}, "pair.bin is not a file"),
        ({"nodes": 2, "walltime": "1h", "data": {"tokenizer": "gone.json"}}, "data.tokenizer: "),
        ({"nodes": 2, "walltime": "1h", "links": "gone.json"}, "links: "),
    ],
)
def test_queues_and_nodes_are_checked_before_the_scheduler(fake: Fake, study: dict[str, Any], says: str) -> None:
    fake.write_site(
        scheduler={"kind": "slurm"},
        queues={"q": SITE},
        node={"cores": 4},
        launcher={"kind": "srun"},
        oversubscribe=False,
    )
    fake.write_study(layout={}, train={"steps": 20, "global_batch": 64}, **study)
    with pytest.raises(UserError) as caught:
        submit(fake.study, Options(site=str(fake.site), dry_run=not {"data", "links"} & study.keys()))
    assert says in str(caught.value)
    assert not (fake.directory / "results").exists()


def test_a_data_file_is_found_from_the_study(fake: Fake) -> None:
    (fake.directory / "text $(x).txt").write_bytes(random.Random(1).randbytes(40 << 16))
    fake.write_study(data={"source": "file", "path": "text $(x).txt"})
    root = submit(fake.study, Options(site=str(fake.site), only="scheme=baseline")).root
    run = json.loads((root / "runs" / "r1-baseline" / "run.json").read_text())
    assert run["data"]["path"] == str(fake.directory / "text $(x).txt")
    wait_until_over(root)


def test_no_launcher_is_a_clear_error(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(fake.directory / "python"))
    monkeypatch.setenv("PATH", str(fake.directory))
    fake.write_site(launcher={"kind": "mpich"}, python="auto")
    with pytest.raises(UserError, match=r"mpiexec is neither next to .* nor on PATH: install an MPI"):
        submit(fake.study, Options(site=str(fake.site)))
    fake.write_site(launcher={"kind": "mpich", "program": "my-launcher"}, python="auto")
    with pytest.raises(UserError, match=r"my-launcher is neither next to .* nor on PATH: correct launcher.program"):
        submit(fake.study, Options(site=str(fake.site)))
    launcher = fake.directory / "my-launcher"
    launcher.write_text("#!/bin/sh\n", encoding="utf-8")
    assert submit(fake.study, Options(site=str(fake.site), dry_run=True)).jobs[0].launch[0] == str(launcher)
    fake.write_site(launcher={"kind": "mpich"}, python="auto")
    beside = fake.directory / "mpiexec"
    beside.write_text("#!/bin/sh\n", encoding="utf-8")
    submission = submit(fake.study, Options(site=str(fake.site), dry_run=True))
    assert submission.jobs[0].launch[0] == str(beside)
    assert submission.jobs[0].python == str(fake.directory / "python")


def test_a_submission_of_another_user_is_not_continued(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.acts({"baseline": "wait"})
    theirs = submit(fake.study, Options(site=str(fake.site))).root
    me = os.getuid() + 1
    with monkeypatch.context() as patch:
        patch.setattr("hpcbench.batch.find_submission.os.getuid", lambda: me)
        assert find_unfinished(theirs.parent, read_submission(theirs).digest) is None
        assert find_root(theirs.parent) == theirs == find_root(theirs)  # for reading
    assert find_unfinished(theirs.parent, read_submission(theirs).digest) == theirs
    (fake.directory / "go").touch()
    wait_until_over(theirs)


def test_a_submission_in_another_directory_is_found_from_here(fake: Fake, tmp_path: Path) -> None:
    root = submit(fake.study, Options(site=str(fake.site), out=tmp_path / "elsewhere")).root
    wait_until_over(root)
    assert find_root(None) == root


def test_a_part_of_the_jobs_is_cancelled(fake: Fake) -> None:
    fake.acts({"baseline": "wait"})
    fake.write_study(pairing="none")
    root = submit(fake.study, Options(site=str(fake.site))).root
    with pytest.raises(
        UserError,
        match=r"matches no run: no run can match two conditions on scheme: write scheme=a\|b to match either value",
    ):
        cancel(root, "scheme=mzhybrid,scheme=naive-zfp8")
    assert cancel(root, "scheme=mzhybrid|naive-zfp8") == "2 jobs: ended"
    (fake.directory / "go").touch()
    states = {run: status.state.value for run, status in wait_until_over(root).runs.items()}
    assert states == {"r1-baseline": "completed", "r1-mzhybrid": "cancelled", "r1-naive-zfp8": "cancelled"}


def test_a_job_with_other_runs_is_not_cancelled_for_one(fake: Fake) -> None:
    fake.acts({"baseline": "wait"})
    root = submit(fake.study, Options(site=str(fake.site))).root
    with pytest.raises(
        UserError, match=r"does not select run r1-baseline of job j0001-r1, but a job can only be cancelled"
    ):
        cancel(root, "scheme=mzhybrid")
    cancel(root)
    wait_until_over(root)
