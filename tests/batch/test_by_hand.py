"""Tests of manually started Slurm and LSF scripts with a fake launcher, and of the commands that track them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from batch_fakes import Fake, wait_for, wait_until_over

from hpcbench import cli
from hpcbench.batch.submit import Options, submit
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.files import read_json

OUTER = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK", "SLURM_CPU_BIND", "SLURM_STEP_ID"]


def prepared(fake: Fake, tmp_path: Path, kind: str, launcher: str) -> Path:
    fake.write_site(
        scheduler={"kind": kind},
        launcher={"kind": launcher, "program": str(fake.launcher)},
        node={"cores": 40, "sockets": 2},
        oversubscribe=False,
    )
    fake.write_study(walltime="1h")
    return submit(fake.study, Options(site=str(fake.site), dry_run=True, out=tmp_path / "out")).root


def environment() -> dict[str, str]:
    return {**os.environ, **dict.fromkeys((*OUTER, "SLURM_JOB_ID", "SLURM_NNODES", "LSB_JOBID", "LSB_HOSTS"), "1")}


@pytest.mark.parametrize(
    ("kind", "launcher", "argv", "retained", "dropped"),
    [
        (
            "slurm",
            "srun",
            ["--nodes=1", "--ntasks=4", "--ntasks-per-node=4", "--cpus-per-task=10", "--cpu-bind=cores"],
            ["SLURM_JOB_ID", "SLURM_NNODES"],
            ["LSB_JOBID", "LSB_HOSTS", *OUTER],
        ),
        ("lsf", "lrun", ["-N1", "-T4"], ["LSB_JOBID", "LSB_HOSTS"], ["SLURM_JOB_ID", "SLURM_NNODES", *OUTER]),
    ],
)
def test_a_script_that_is_run_by_hand_is_tracked(
    fake: Fake, tmp_path: Path, kind: str, launcher: str, argv: list[str], retained: list[str], dropped: list[str]
) -> None:
    root = prepared(fake, tmp_path, kind, launcher)
    done = subprocess.run(
        ["bash", str(root / "jobs" / "j0001-r1" / "job.sh")],
        cwd="/",
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    note = "inside another launcher's rank: settings in OMPI_MCA_*, PRTE_MCA_* and PMIX_MCA_* are dropped\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", note if launcher == "lrun" else "")
    assert {s.state for s in track(root).runs.values()} == {State.COMPLETED}
    calls = [call for call in fake.calls if "argv" in call]
    assert [call["argv"][: len(argv)] for call in calls] == [argv] * 3
    for call in calls:
        assert set(retained) <= set(call["env"]) and not set(dropped) & set(call["env"])


def test_the_run_limit_of_lsf_leaves_marks(fake: Fake, tmp_path: Path) -> None:
    fake.acts({"naive-zfp8": "sleep"})
    root = prepared(fake, tmp_path, "lsf", "lrun")
    job = subprocess.Popen(["bash", str(root / "jobs" / "j0001-r1" / "job.sh")], stderr=subprocess.DEVNULL)
    pids = fake.children
    job.send_signal(signal.SIGUSR2)
    assert job.wait(timeout=30) == 140
    os.kill(pids[2], signal.SIGKILL)
    mark = read_json(root / "jobs" / "j0001-r1" / "status.json")
    assert mark is not None and mark["exit"] == 140
    states = {run: status.state for run, status in track(root).runs.items()}
    assert states == {"r1-baseline": State.COMPLETED, "r1-naive-zfp8": State.FAILED, "r1-mzhybrid": State.LOST}
    assert "12 (USR2)" in track(root).runs["r1-naive-zfp8"].reason


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["hpcbench", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_status_exits_with_1_after_a_failure(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.acts({"naive-zfp8": "fail"})
    assert command(monkeypatch, "submit", str(fake.study), "--site", str(fake.site)) == 0
    root = Path(capsys.readouterr().out.splitlines()[-1])
    wait_until_over(root)
    assert command(monkeypatch, "status") == 1
    out = capsys.readouterr().out
    assert "failed" in out and "exit status 3: boom: the reason" in out and out.count("completed") == 2
    assert command(monkeypatch, "status", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["root"] == str(root) and document["over"] and document["failed"]
    states = {run["scheme"]: (run["state"], run["exit"]) for job in document["jobs"] for run in job["runs"]}
    assert states["naive-zfp8"] == ("failed", 3) and list(states.values()).count(("completed", 0)) == 2
    assert command(monkeypatch, "status", "--json", "--watch") == 2
    fake.acts({})
    assert command(monkeypatch, "submit", str(fake.study), "--site", str(fake.site)) == 0
    wait_until_over(root.with_name("002"))
    assert command(monkeypatch, "status") == 0
    assert command(monkeypatch, "status", str(root)) == 1


def test_cancel_from_the_command_line(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.acts({"baseline": "sleep"})
    assert command(monkeypatch, "submit", str(fake.study), "--site", str(fake.site)) == 0
    root = Path(capsys.readouterr().out.splitlines()[-1])
    wait_for(lambda: fake.children)
    assert command(monkeypatch, "cancel") == 0
    assert f"{root}: 1 job: ended" in capsys.readouterr().out.replace("results/", f"{root.parents[1]}/")
    assert command(monkeypatch, "status") == 1


def test_cancel_of_jobs_run_by_hand_names_the_command(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = prepared(fake, tmp_path, "slurm", "srun")
    assert command(monkeypatch, "cancel", str(root)) == 0
    assert capsys.readouterr().out == f"{root}: nothing was submitted\n"
    job = next((root / "jobs").iterdir())
    (job / "status.json").write_text('{"state": "running", "attempt": 1, "id": "4711"}', encoding="utf-8")
    assert command(monkeypatch, "cancel", str(root)) == 2
    assert "was submitted by hand: cancel its jobs with the scheduler's own command (4711)" in capsys.readouterr().err
    submission = json.loads((root / "submission.json").read_text(encoding="utf-8"))
    assert submission["scheduler"] == "slurm"
