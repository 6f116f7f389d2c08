"""Tests of the local scheduler with real queues and job scripts, and a launcher that acts as a test specifies."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from batch_fakes import Fake, wait_for, wait_until_over

from hpcbench.batch.cancel import cancel
from hpcbench.batch.schedulers.local import lock_path
from hpcbench.batch.schedulers.processes import alive, identity
from hpcbench.batch.submit import Options, SubmitResult, submit
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.errors import UserError
from hpcbench.files import read_json


def start(fake: Fake, **options: object) -> SubmitResult:
    return submit(fake.study, Options(site=str(fake.site), **options))  # type: ignore[arg-type]


def test_runs_start_one_after_another_and_write_status_files(fake: Fake) -> None:
    fake.write_study(repeats=2)
    root = start(fake).root
    tracked = wait_until_over(root)
    assert {s.state for s in (*tracked.runs.values(), *tracked.jobs.values())} == {State.COMPLETED}
    assert not tracked.failed
    order = ["baseline", "naive-zfp8", "mzhybrid"]
    names = [f"r1-{s}" for s in order] + [f"r2-{s}" for s in order[1:] + order[:1]]
    assert [call.get("run") or call["ended"] for call in fake.calls] == [name for name in names for _ in (0, 1)]
    for run, job in zip(names, ["j0001-r1"] * 3 + ["j0002-r2"] * 3, strict=True):
        mark = read_json(root / "runs" / run / "status.json")
        assert mark is not None
        assert {key: mark[key] for key in ("state", "exit", "job")} == {"state": "ended", "exit": 0, "job": job}
        assert mark["start"].endswith("Z") and mark["start"] <= mark["end"] and mark["host"]
        assert '"completed"' in (root / "runs" / run / "log.txt").read_text(encoding="utf-8")
        assert (root / "runs" / run / "err.txt").read_text(encoding="utf-8") == ""
    job_mark = read_json(root / "jobs" / "j0001-r1" / "status.json")
    assert job_mark is not None
    assert {key: job_mark[key] for key in ("state", "exit", "attempt")} == {"state": "ended", "exit": 0, "attempt": 1}
    assert job_mark["hosts"] == [job_mark["host"]] and job_mark["start"] <= job_mark["end"]


def test_the_launcher_gets_exactly_its_arguments_and_no_shell_reads_names(fake: Fake) -> None:
    root = start(fake, only="scheme=baseline").root
    wait_until_over(root)
    (call, _) = fake.calls
    assert call["argv"] == [
        *["-n", "4", "-bind-to", "none", "--extra arg"],
        *["python of the ranks", "-u", "-m", "hpcbench.train", "runs/r1-baseline/run.json"],
    ]
    assert call["cwd"] == str(root)
    names = {path.name for path in fake.directory.parent.rglob("*")} | {path.name for path in Path.cwd().iterdir()}
    assert "pwned" not in names


def test_variables_of_an_outer_job_do_not_reach_the_ranks(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = [
        "SLURM_CPU_BIND",
        "SLURM_JOB_ID",
        "LSB_JOBID",
        "PMI_RANK",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK",
        "HYDRA_RMK",
    ]
    for name in outer:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("KEPT", "a 'b' $c")
    fake.write_site(environment={"SET": "x $(touch pwned)", "OMPI_MCA_btl": "self"}, setup=["export LINE=$((1 + 1))"])
    wait_until_over(start(fake, only="scheme=baseline").root)
    env = fake.calls[0]["env"]
    assert not set(outer) & set(env)
    wanted = {"SLURM_CONF": "/etc/slurm.conf", "KEPT": "a 'b' $c", "SET": "x $(touch pwned)", "LINE": "2"}
    wanted |= {"OMPI_MCA_btl": "self", "OMP_NUM_THREADS": "1"}
    assert {name: env[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("act", "state", "reason"),
    [
        ("fail", State.FAILED, "exit status 3: boom: the reason, before its first step"),
        ("nan", State.NAN, "loss not finite at step 7"),
        ("kill", State.FAILED, "a rank was killed by signal 9 (KILL), exit status 137, before its first step"),
        ("mute", State.UNKNOWN, "exit status 0, but its log has no end event, so the end of the run is unknown"),
    ],
)
def test_a_failed_run_does_not_stop_the_others(fake: Fake, act: str, state: State, reason: str) -> None:
    fake.acts({"naive-zfp8": act})
    tracked = wait_until_over(start(fake).root)
    states = [tracked.runs[f"r1-{scheme}"].state for scheme in ("baseline", "naive-zfp8", "mzhybrid")]
    assert states == [State.COMPLETED, state, State.COMPLETED]
    assert tracked.runs["r1-naive-zfp8"].reason == reason
    assert tracked.failed
    assert tracked.jobs["j0001-r1"].state is (State.COMPLETED if act == "mute" else State.FAILED)


def test_a_launcher_that_is_missing_fails_each_run(fake: Fake) -> None:
    fake.launcher.unlink()
    tracked = wait_until_over(start(fake).root)
    assert {s.state for s in tracked.runs.values()} == {State.FAILED}
    assert all(run.reason.startswith("exit status 127: ") for run in tracked.runs.values())
    for path in tracked.root.glob("runs/*/err.txt"):
        assert "launch er: No such file or directory" in path.read_text(encoding="utf-8")


def queue_of(root: Path) -> dict[str, object]:
    queue = read_json(root / "queues" / "1.json")
    assert queue is not None
    process: dict[str, object] = queue["process"]
    return process


def running(root: Path, scheme: str, repeat: int = 1) -> bool:
    return track(root).runs[f"r{repeat}-{scheme}"].state is State.RUNNING


def test_waiting_jobs_of_a_killed_queue_are_reported_as_lost(fake: Fake) -> None:
    fake.acts({"naive-zfp8": "sleep"})
    fake.write_study(repeats=2)
    root = start(fake).root
    wait_for(lambda: running(root, "naive-zfp8"))
    pids = fake.children
    queue = queue_of(root)
    os.kill(int(str(queue["pid"])), signal.SIGKILL)
    wait_for(lambda: not alive(queue))
    tracked = track(root)
    assert tracked.jobs["j0001-r1"].state is State.RUNNING  # its script continues, and its run is not lost
    assert tracked.runs["r1-naive-zfp8"].state is State.RUNNING
    assert tracked.jobs["j0002-r2"].state is State.LOST
    assert tracked.runs["r2-baseline"].state is State.LOST
    assert "the local queue ended before this job" in tracked.runs["r2-baseline"].reason
    assert tracked.failed

    job = read_json(root / "jobs" / "j0001-r1" / "process.json")
    assert job is not None
    os.killpg(int(job["pid"]), signal.SIGKILL)  # the script dies before it records its exit status
    wait_for(lambda: not alive(job))
    tracked = track(root)
    assert tracked.jobs["j0001-r1"].state is State.LOST
    states = [tracked.runs[f"r1-{scheme}"].state for scheme in ("baseline", "naive-zfp8", "mzhybrid")]
    assert states == [State.COMPLETED, State.LOST, State.LOST]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_cancel_ends_all_processes_and_keeps_completed_runs(fake: Fake) -> None:
    fake.acts({"naive-zfp8": "sleep"})
    fake.write_study(repeats=2)
    root = start(fake).root
    wait_for(lambda: running(root, "naive-zfp8"))
    family = [identity(pid) for pid in fake.children]
    assert all(alive(process) for process in family)
    assert cancel(root) == "2 jobs: ended"
    wait_for(lambda: not any(alive(process) for process in family))
    wait_for(lambda: not alive(queue_of(root)))
    tracked = track(root)
    assert tracked.runs["r1-baseline"].state is State.COMPLETED
    others = [status.state for run, status in tracked.runs.items() if run != "r1-baseline"]
    assert others == [State.CANCELLED] * 5
    assert [s.state for s in tracked.jobs.values()] == [State.CANCELLED] * 2
    assert tracked.over
    assert cancel(root) == "no job is waiting or running"


def test_cancel_after_the_end_changes_nothing(fake: Fake) -> None:
    root = start(fake, only="scheme=baseline").root
    wait_until_over(root)
    wait_for(lambda: not alive(queue_of(root)))
    assert cancel(root) == "no job is waiting or running"
    assert {s.state for s in track(root).runs.values()} == {State.COMPLETED}


def test_two_submissions_do_not_run_at_once(fake: Fake) -> None:
    fake.acts({"baseline": "nap", "naive-zfp8": "nap", "mzhybrid": "nap"})
    first, second = start(fake).root, start(fake, again=True).root
    assert (first.name, second.name) == ("001", "002")
    wait_until_over(first)
    wait_until_over(second)
    calls = fake.calls
    assert [call.get("run") or call["ended"] for call in calls] == [
        f"r1-{scheme}" for scheme in ("baseline", "naive-zfp8", "mzhybrid") * 2 for _ in (0, 1)
    ]
    halves = [{call["cwd"] for call in half if "cwd" in call} for half in (calls[:6], calls[6:])]
    assert sorted(map(sorted, halves)) == [[str(first)], [str(second)]]  # the script that acquired the lock first


def test_the_lock_outlives_a_killed_queue_as_long_as_its_job_runs(fake: Fake) -> None:
    fake.acts({"baseline": "sleep"})
    first = start(fake, only="scheme=baseline").root
    wait_for(lambda: running(first, "baseline"))
    family = [identity(pid) for pid in fake.children]
    os.kill(int(str(queue_of(first)["pid"])), signal.SIGKILL)
    fake.acts({})
    second = start(fake, only="scheme=mzhybrid").root
    time.sleep(1.0)
    assert track(second).jobs["j0001-r1"].state is State.PENDING
    assert "waits for its turn" in track(second).jobs["j0001-r1"].reason
    cancel(first)
    wait_for(lambda: not any(alive(process) for process in family))
    assert {s.state for s in wait_until_over(second).runs.values()} == {State.COMPLETED}


def test_a_lock_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"hpcbench-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="belongs to another user"):
        lock_path()


def test_a_process_id_that_is_used_again_is_another_process() -> None:
    child = subprocess.Popen(["sleep", "60"])
    process = identity(child.pid)
    assert process is not None and alive(process)
    assert not alive({**process, "start": process["start"] - 1})
    assert not alive({**process, "boot": "another boot"})
    child.kill()
    wait_for(lambda: not alive(process))  # a zombie until its parent waits for it
    child.wait()
    assert identity(child.pid) is None


def test_a_script_that_gets_sigterm_writes_status_files(fake: Fake) -> None:
    fake.acts({"baseline": "sleep"})
    submission = start(fake, dry_run=True)
    script = submission.root / "jobs" / "j0001-r1" / "job.sh"
    job = subprocess.Popen(["bash", str(script)], cwd="/", start_new_session=True, stderr=subprocess.DEVNULL)
    pids = fake.children
    family = [identity(pid) for pid in pids[:2]]
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=30) == 143
    mark = read_json(submission.root / "runs" / "r1-baseline" / "status.json")
    assert mark is not None and (mark["state"], mark["exit"]) == ("ended", 143)
    assert (
        json.loads((submission.root / "jobs" / "j0001-r1" / "status.json").read_text(encoding="utf-8"))["exit"] == 143
    )
    os.kill(pids[2], signal.SIGKILL)  # it left the session, so only the queue's cancel reaches it
    wait_for(lambda: not any(alive(process) for process in family))


def test_a_script_handles_signals_that_its_submitter_ignored(fake: Fake) -> None:
    """Signals are ignored under nohup, or in a background job of make."""
    fake.acts({"baseline": "sleep"})
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        root = start(fake, only="scheme=baseline").root
    finally:
        for number, action in before.items():
            signal.signal(number, action)
    launcher, *_ = fake.children
    status = Path(f"/proc/{launcher}/status").read_text(encoding="utf-8")
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    assert [number for number in before if ignored >> (number - 1) & 1] == []
    script = read_json(root / "jobs" / "j0001-r1" / "process.json")
    assert script is not None
    os.kill(script["pid"], signal.SIGINT)
    wait_until_over(root)
    marks = [read_json(root / path / "status.json") for path in ("jobs/j0001-r1", "runs/r1-baseline")]
    assert [mark and mark["exit"] for mark in marks] == [130, 130]
