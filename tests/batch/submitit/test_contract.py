"""Tests of hpcbench's assumptions about submitit, and of submitit's assumptions about its plugins."""

import ast
import json
import operator
import pickle
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from programs import Programs
from submitit.core import core, plugins

import hpcbench
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.batch.schedulers.submitit_lsf import (
    LSFExecutor,
    LSFJob,
    LSFJobEnvironment,
    owner,
    read_statuses,
)
from hpcbench.batch.schedulers.submitit_watcher import StatusWatcher
from hpcbench.contract.state import State
from hpcbench.doctor.shell import check_submitit
from hpcbench.errors import UserError

TAKEN = "Job <{}> is submitted to queue <q>.\n"
HEADER = "JOBID^JOBINDEX^STAT^EXIT_CODE^SUBMIT_TIME^START_TIME^FINISH_TIME^RUN_TIME^MAX_MEM^EXEC_HOST^JOB_NAME"
HEADER += "^EXIT_REASON^PEND_REASON\n"
ROW = "^-^-^-^-^-^-^n1^x^-^-\n"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watchers are class attributes. Each test gets its own watcher."""
    monkeypatch.setattr(LSFJob, "watcher", StatusWatcher(read_statuses))


def test_entry_points() -> None:
    ours = [point for point in metadata.entry_points(group="submitit") if point.value.startswith("hpcbench.")]
    assert {point.name: point.load() for point in ours} == {
        "executor": LSFExecutor,
        "job_environment": LSFJobEnvironment,
    }


def test_lsf_is_ours() -> None:
    assert plugins.get_executors()["lsf"] is LSFExecutor
    assert isinstance(plugins.get_job_environments()["lsf"], LSFJobEnvironment)
    assert owner() == "hpcbench.batch.schedulers.submitit_lsf.LSFExecutor"
    assert "_" not in LSFExecutor.name()  # submitit takes the part before the first underscore as the name


def test_another_owner_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(core.PicklingExecutor):
        pass

    assert check_submitit()[-1].fact == owner()
    monkeypatch.setattr(plugins, "get_executors", lambda: {"lsf": Other})
    assert owner().endswith("Other")
    assert "another package registers lsf" in check_submitit()[-1].fact
    monkeypatch.setattr(plugins, "get_executors", dict)
    assert owner() == "none"
    assert check_submitit()[-1].fact.startswith("none: hpcbench is not installed here; ")


def test_no_cluster_no_executor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert LSFExecutor.affinity() == -1
    with pytest.raises(RuntimeError, match="bsub is not on PATH"):
        LSFExecutor(tmp_path)


def test_a_job_outlives_its_process(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bsub", TAKEN.format(1))
    programs.answer("bjobs", HEADER + "1^0^RUN" + ROW)
    path = tmp_path / "job.pkl"
    path.write_bytes(pickle.dumps(LSFExecutor(tmp_path / "not" / "there").submit(print, 1)))
    code = "import pickle, sys; job = pickle.load(open(sys.argv[1], 'rb')); print([job.job_id, job.state, job.done()])"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == ["1", "RUNNING", False]


def format_statuses(*words: tuple[str, str]) -> str:
    return HEADER + "".join(f"{job}^0^{stat}" + ROW for job, stat in words)


def test_what_is_not_over(programs: Programs, tmp_path: Path) -> None:
    over = {"DONE", "EXIT"}
    for stat in ("PEND", "RUN", "PSUSP", "USUSP", "SSUSP", "UNKWN", "ZOMBI", "WAIT", "PROV", "NEW", *sorted(over)):
        programs.forget("bjobs")
        programs.answer("bjobs", format_statuses(("1", stat)))
        LSFJob.watcher.clear()
        job: LSFJob[None] = LSFJob(folder=tmp_path, job_id="1")
        LSFJob.watcher._finished.clear()
        assert job.watcher.is_done("1", mode="force") is (stat in over), stat


def test_what_is_missing_is_not_completed(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bjobs", "", "Job <1> is not found\n", 255)
    programs.answer("bhist", "", "No matching job found\n", 255)
    job: LSFJob[None] = LSFJob(folder=tmp_path, job_id="1")
    assert job.state == "UNKNOWN"
    assert job.done(force_check=True) is False


def test_two_jobs_one_call(programs: Programs, tmp_path: Path) -> None:
    programs.answer("bjobs", format_statuses(("1", "RUN"), ("2", "DONE")))
    jobs: list[LSFJob[None]] = [LSFJob(folder=tmp_path, job_id=job) for job in ("1", "2")]
    assert [job.state for job in jobs] == ["RUNNING", "COMPLETED"]
    assert [job.done() for job in jobs] == [False, True]
    assert len(programs.calls("bjobs")) == 1


def test_a_state_outlives_what_says_nothing() -> None:
    answers = [
        {"1": JobStatus(State.RUNNING)},
        {"1": JobStatus(State.UNKNOWN, "UNKWN")},
        {},
        UserError("LSF is away"),
        {"1": JobStatus(State.TIMED_OUT, "TERM_RUNLIMIT", exit=140)},
    ]

    def find_statuses(ids: object) -> dict[str, JobStatus]:
        answer = answers.pop(0)
        if isinstance(answer, UserError):
            raise answer
        return answer

    watcher = StatusWatcher(find_statuses)
    watcher.register_job("1")
    seen = []
    while answers:
        watcher.update()
        seen.append(watcher.get_state("1", mode="cache"))
    assert seen == ["RUNNING"] * 4 + ["TIMEOUT"]
    assert watcher.get_info("1", mode="cache")["Exit"] == "140"
    assert watcher.is_done("1", mode="cache")
    watcher.update()  # no further call, which would have no answer


def test_jobs_derive_from_submitit_s_alone() -> None:
    """Another base class would break `batch`, which changes the class of a job."""
    assert all(issubclass(base, core.Job) for base in LSFJob.__bases__)


def test_a_dry_run_does_not_load_submitit() -> None:
    modules = ["slurm", "lsf", "slurm_query", "lsf_query", "scheduler"]
    code = "import sys, json\n" + "".join(f"import hpcbench.batch.schedulers.{name}\n" for name in modules)
    code += "print(json.dumps([name for name in ('submitit', 'numpy', 'cloudpickle') if name in sys.modules]))"
    root = str(Path(hpcbench.__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert json.loads(done.stdout) == []


def test_arrays_keep_our_class(lsf: Programs, tmp_path: Path) -> None:
    class Mine(LSFExecutor):
        pass

    jobs = Mine(tmp_path / "new").map_array(operator.add, [1, 2, 3], [10, 20, 30])
    assert [job.result() for job in jobs] == [11, 22, 33]
    assert {type(job) for job in jobs} == {LSFJob}
    number = jobs[0].job_id.partition("_")[0]
    assert [job.job_id for job in jobs] == [f"{number}_{k}" for k in (1, 2, 3)]
    assert len(lsf.calls("bsub")) == 1
