"""Tests of Python functions submitted to LSF with submitit. Fake programs run the functions."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import submitit
from programs import Programs

from hpcbench.batch.schedulers.lsf_script import Parameters, one_line, script_text
from hpcbench.batch.schedulers.submitit_lsf import LSFJob, LSFJobEnvironment, read_statuses
from hpcbench.batch.schedulers.submitit_watcher import StatusWatcher

PLACE = Path(__file__).parents[2]
TESTS = os.pathsep.join([str(Path(__file__).parent), *(each for each in sys.path if Path(each).is_relative_to(PLACE))])
"""Directories from which a job imports this module. Others may hide modules of Python, like benchmarks/codecs.py."""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """New watchers for each test, because watchers are class attributes."""
    monkeypatch.setattr(LSFJob, "watcher", StatusWatcher(read_statuses))


def describe(value: int) -> dict[str, Any]:
    """Return the environment of a job."""
    environment = submitit.JobEnvironment()
    print("printed", value)
    return {
        "value": value,
        "job": environment.job_id,
        "cluster": environment.cluster,
        "tasks": environment.num_tasks,
        "rank": environment.global_rank,
        "hosts": list(environment.hostnames),
        "where": str(Path.cwd()),
        "inherited": os.environ.get("SLURM_CPU_BIND"),
    }


def fail() -> None:
    """Raise."""
    raise ValueError("on purpose")


class Counter:
    """A counter whose value survives a requeue."""

    def __init__(self, reached: int = 0) -> None:
        self.reached = reached

    def __call__(self, ready: str) -> int:
        if self.reached:
            return self.reached
        self.reached = 41
        Path(ready).touch()
        time.sleep(60)
        return 0

    def checkpoint(self, ready: str) -> submitit.helpers.DelayedSubmission:
        return submitit.helpers.DelayedSubmission(Counter(self.reached + 1), ready)


def wait_for(path: Path) -> None:
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} did not come")


def test_a_function(lsf: Programs, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_CPU_BIND", "x")
    monkeypatch.setenv("PYTHONPATH", TESTS)
    executor = submitit.AutoExecutor(hostile, cluster="lsf")
    executor.update_parameters(timeout_min=3, name="one", lsf_queue="q", lsf_stderr_to_stdout=True)
    job = executor.submit(describe, 7)
    assert job.result() == {
        "value": 7,
        "job": job.job_id,
        "cluster": "lsf",
        "tasks": 1,
        "rank": 0,
        "hosts": ["n1"],
        "where": str(tmp_path),
        "inherited": None,
    }
    assert "printed 7" in (job.stdout() or "")
    assert job.paths.submission_file.exists()
    assert not list(tmp_path.rglob("pwned"))


def test_an_exception(lsf: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTS)
    job = submitit.AutoExecutor(tmp_path, cluster="lsf").submit(fail)
    with pytest.raises(submitit.core.utils.FailedJobError, match="on purpose"):
        job.result()


def test_batches_and_arrays(lsf: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTS)
    executor = submitit.AutoExecutor(tmp_path / "%A", cluster="lsf")
    executor.update_parameters(lsf_array_parallelism=2, name="arr")
    with executor.batch():
        jobs = [executor.submit(describe, k) for k in range(3)]
    results = [job.result() for job in jobs]
    assert [result["value"] for result in results] == [0, 1, 2]
    assert [result["job"] for result in results] == [job.job_id for job in jobs]
    [call] = lsf.calls("bsub")
    assert '#BSUB -J "arr[1-3]%2"\n' in call["stdin"]
    assert all(isinstance(job, LSFJob) for job in jobs)


def test_a_checkpoint_goes_on_after_a_requeue(lsf: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTS)
    executor = submitit.AutoExecutor(tmp_path, cluster="lsf")
    job = executor.submit(Counter(), str(tmp_path / "ready"))
    wait_for(tmp_path / "ready")
    job._interrupt()
    assert job.result() == 42
    [call] = lsf.calls("brequeue")
    assert call["argv"] == [job.job_id]


def test_cancel(lsf: Programs, tmp_path: Path) -> None:
    executor = submitit.AutoExecutor(tmp_path, cluster="lsf")
    jobs = executor.map_array(time.sleep, [600, 600])
    for job in jobs:
        while job.watcher.get_state(job.job_id, mode="force") != "RUNNING":
            time.sleep(0.05)
    jobs[1].cancel()
    number = jobs[0].job_id.partition("_")[0]
    assert lsf.calls("bkill")[-1]["argv"] == [f"{number}[2]"]
    while not jobs[1].done(force_check=True):
        time.sleep(0.05)
    assert jobs[0].done(force_check=True) is False


@pytest.mark.parametrize("message", ["Job <1>: Job has already finished", "Job <1>: No matching job found"])
def test_a_job_that_is_over_is_cancelled_without_an_error(programs: Programs, tmp_path: Path, message: str) -> None:
    programs.answer("bkill", "", f"{message}\n", 255)
    LSFJob(folder=tmp_path, job_id="1").cancel()
    assert programs.calls("bkill")[0]["argv"] == ["1"]


def test_a_cancel_that_lsf_refuses_is_an_error_where_it_is_checked(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bkill", "", "Job <1>: Operation not permitted\n", 255)
    job: LSFJob[None] = LSFJob(folder=tmp_path, job_id="1")
    with pytest.raises(subprocess.CalledProcessError):
        job.cancel()
    job.cancel(check=False)


def test_unknown_parameters(lsf: Programs, tmp_path: Path) -> None:
    executor = submitit.AutoExecutor(tmp_path, cluster="lsf")
    with pytest.raises(NameError, match="lsf_colour"):
        executor.update_parameters(lsf_colour="red")
    executor.update_parameters(slurm_partition="x")  # a parameter of another cluster is skipped
    with pytest.raises(ValueError, match="job name"):
        executor.update_parameters(name="x[1-5]")


def directives(**parameters: Any) -> list[str]:
    text = script_text("true", Path("/f"), Parameters(**parameters))
    return [line[6:] for line in text.splitlines() if line.startswith("#BSUB")]


def test_directives() -> None:
    assert directives(time=90, nodes=2, tasks_per_node=4, cpus_per_task=5, gpus_per_node=4, project="p") == [
        '-J "submitit"',
        "-W 90",
        "-o /dev/null",
        "-P p",
        "-n 40",
        '-R "span[ptile=20]"',
        '-gpu "num=4"',
        "-wa USR2",
        "-wt 2",
    ]
    for spared in ({"refuses": ["-wa"]}, {"refuses": ["-wa", "-wt"]}, {"signal_delay_min": 0}):
        assert not {"-wa USR2", "-wt 2"} & set(directives(time=90, **spared))
    lines = directives(nodes=3, tasks_per_node=4, whole_nodes=True, group="bank", additional_parameters={"-x": None})
    assert "-nnodes 3" in lines
    assert lines[-1] == "-x"
    assert not [line for line in lines if line.startswith(("-n ", "-R", "-gpu"))]


@pytest.mark.parametrize(
    "wrong",
    [
        {"job_name": "a b"},
        {"job_name": "x[1-5]"},
        {"job_name": ""},
        {"queue": "a\n#BSUB -x"},
        {"project": "a b"},
        {"additional_parameters": {"-R": "a\nb"}},
        {"additional_parameters": {"x y": 1}},
        {"hand_in": "mouth"},
        {"nodes": 0},
        {"refuses": ["-J"]},
    ],
)
def test_what_directives_cannot_hold(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Parameters(**wrong)


def test_folders_make_no_directives(hostile: Path) -> None:
    text = script_text(f"echo {one_line(str(hostile))}", hostile, Parameters())
    assert len([line for line in text.splitlines() if line.startswith("#BSUB")]) == 7
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_ranks_of_several_tasks(tmp_path: Path) -> None:
    """The launcher starts two processes, each with its rank in the environment."""
    launcher = "for PMI_RANK in 0 1 2 3; do export PMI_RANK; "
    shape = Parameters(nodes=2, tasks_per_node=2, launcher="start")
    text = script_text("env", tmp_path / "logs", shape)
    text = text.replace('start bash -c "$task"', f'{launcher}bash -c "$task"; done')
    environment = {**os.environ, "LSB_JOBID": "5", "LSB_JOBINDEX": "0"}
    subprocess.run(["bash"], input=text, text=True, check=True, env=environment)
    for rank, (node, local) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        output = (tmp_path / "logs" / f"5_{rank}_log.out").read_text(encoding="utf-8")
        assert dict(re.findall(r"^SUBMITIT_LSF_(RANK|NODEID|LOCAL_RANK|NTASKS)=(.*)$", output, re.MULTILINE)) == {
            "RANK": str(rank),
            "NODEID": str(node),
            "LOCAL_RANK": str(local),
            "NTASKS": "4",
        }


@pytest.mark.parametrize(
    ("listed", "hosts"),
    [
        (["launch", "n1", "n1", "n2", "n2"], ["n1", "n2"]),
        (["n1", "n2"], ["n1", "n2"]),
        (["n1"], ["n1"]),
        (["n1", "n1", "n2"], ["n1", "n2"]),
    ],
)
def test_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: list[str], hosts: list[str]) -> None:
    monkeypatch.delenv("LSB_DJOB_HOSTFILE", raising=False)
    monkeypatch.setenv("LSB_MCPU_HOSTS", " ".join(f"{host} {listed.count(host)}" for host in dict.fromkeys(listed)))
    assert LSFJobEnvironment().hostnames == hosts
    path = tmp_path / "hosts"
    path.write_text("\n".join(listed), encoding="utf-8")
    monkeypatch.setenv("LSB_DJOB_HOSTFILE", str(path))
    monkeypatch.delenv("LSB_MCPU_HOSTS")
    assert LSFJobEnvironment().hostnames == hosts


def test_a_site_that_takes_files(lsf: Programs, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", TESTS)
    executor = submitit.AutoExecutor(hostile, cluster="lsf")
    executor.update_parameters(lsf_hand_in="file")
    assert executor.submit(describe, 7).result()["where"] == str(tmp_path)
    [call] = lsf.calls("bsub")
    assert call["stdin"] == ""
    assert re.fullmatch(r"\./[.a-z0-9_]+\.sh", call["argv"][-1])
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize(("index", "job"), [(None, "7"), ("0", "7"), ("3", "7_3")])
def test_job_ids(monkeypatch: pytest.MonkeyPatch, index: str | None, job: str) -> None:
    monkeypatch.setenv("LSB_JOBID", "7")
    monkeypatch.delenv("LSB_JOBINDEX", raising=False)
    if index is not None:
        monkeypatch.setenv("LSB_JOBINDEX", index)
    assert LSFJobEnvironment().job_id == job
