"""Tests of jobs of the fake LSF: they run, wait for each other, and are signaled, killed and requeued."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Fake
from fakes.processes import list_processes
from fakes.state import DONE, EXITED, HELD, RUNNING, STOPPED, SYSTEM_STOPPED, WAITING, Job

from hpcbench.errors import UserError

pytestmark = pytest.mark.long  # in `make test`, other tests submit through it

TRAPPED = """trap 'echo usr2 >> signals' USR2
trap 'echo int >> signals' INT
trap 'echo term >> signals; exit 9' TERM
touch ready
while :; do sleep 0.05; done"""


def submit(fake: Fake, body: str, *options: str) -> None:
    """Queue a script."""
    done = fake.run("bsub", *options, stdin=f"#!/bin/bash\n{body}\n".encode())
    assert done.returncode == 0, done.stderr


def until(path: str) -> None:
    """Wait for the file that a job creates."""
    deadline = time.monotonic() + 30
    while not Path(path).exists():
        assert time.monotonic() < deadline, f"{path}: the job did not write it"
        time.sleep(0.02)


def reason(fake: Fake, key: str) -> str:
    """Return the reason why a job ended."""
    return fake.run("bjobs", "-a", "-noheader", "-o", "exit_reason delimiter='|'", key).stdout.strip()


def test_environment_and_hosts(lsf: Fake) -> None:
    submit(
        lsf,
        'env > "env.$LSB_JOBINDEX"; cat "$LSB_DJOB_HOSTFILE" > hosts',
        "-nnodes",
        "2",
        "-J",
        "named",
        "-o",
        "out.%J.%I",
    )
    lsf.wait()
    env = dict(line.split("=", 1) for line in Path("env.0").read_text(encoding="utf-8").splitlines() if "=" in line)
    assert (env["LSB_JOBID"], env["LSB_JOBINDEX"], env["LSB_QUEUE"], env["LSB_JOBNAME"]) == (
        "1",
        "0",
        "normal",
        "named",
    )
    assert env["LSB_MCPU_HOSTS"] == "launch1 1 node1 40 node2 40"
    assert Path(env["LS_SUBCWD"]).samefile(Path.cwd())
    hosts = Path("hosts").read_text(encoding="utf-8").split()
    assert hosts == ["launch1"] + ["node1"] * 40 + ["node2"] * 40
    assert env["LSB_HOSTS"].split() == hosts
    report = Path("out.1.0").read_text(encoding="utf-8")
    assert "Subject: Job 1: <named>" in report
    assert "Successfully completed." in report


def test_plain_lsf_has_no_launch_host(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf", flavour="lsf")
    submit(lsf, 'echo "$LSB_MCPU_HOSTS" > hosts', "-n", "4", "-R", "span[ptile=2]")
    lsf.wait()
    assert Path("hosts").read_text(encoding="utf-8") == "node1 2 node2 2\n"


def test_array_is_throttled(lsf: Fake) -> None:
    body = "echo start >> log; n=$(grep -c start log); m=$(grep -c end log); echo $((n - m)) >> running\n"
    body += "sleep 0.2; echo end >> log"
    submit(lsf, body, "-J", "a[1-4]%1")
    assert [job.exit for job in lsf.wait()] == [0] * 4
    assert Path("running").read_text(encoding="utf-8").split() == ["1"] * 4
    assert sorted(job.index for job in lsf.jobs) == [1, 2, 3, 4]


def test_a_node_runs_one_job(lsf: Fake) -> None:
    submit(lsf, "sleep 0.3", "-nnodes", "3")
    submit(lsf, "true", "-nnodes", "2")
    first, second = lsf.wait()
    assert second.started >= first.ended


@pytest.mark.parametrize(
    ("condition", "code", "runs"),
    [
        ("done(1)", 0, True),
        ("done(1)", 3, False),
        ("1", 0, True),
        ("ended(1)", 3, True),
        ("exit(1)", 3, True),
        ("exit(1, 3)", 3, True),
        ("exit(1, 4)", 3, False),
        ("exit(1)", 0, False),
        ('done("first")', 0, True),
        ("done(1) || exit(1)", 3, True),
        ("ended(1) && !done(1)", 3, False),
    ],
)
def test_dependencies(lsf: Fake, condition: str, code: int, runs: bool) -> None:
    submit(lsf, f"sleep 0.2; exit {code}", "-J", "first")
    submit(lsf, "true", "-w", condition, "-ti")
    first, second = lsf.wait()
    assert (second.state == DONE) is runs
    if runs:
        assert second.started >= first.ended
    else:
        assert second.starts == 0
        assert reason(lsf, "2").startswith("TERM_ORPHAN_SYSTEM")


def test_run_limit_warns_and_then_ends(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf", minute=0.1)
    warned = ("-W", "30", "-wa", "HUP", "-wt", "10")
    submit(lsf, TRAPPED, *warned)
    submit(lsf, "trap 'echo hup > hup' HUP; trap 'exit 0' USR2; while :; do sleep 0.05; done", *warned)
    first, second = lsf.wait()
    assert (first.state, first.exit) == (EXITED, 129)  # the warning signal ends a job that does not handle it
    assert (second.state, second.exit) == (DONE, 0)
    assert second.ended - second.started >= 3.0
    assert Path("hup").exists()


def test_a_job_that_ignores_the_limit_is_killed_ten_minutes_later(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf", minute=0.1)
    submit(lsf, TRAPPED, "-W", "10")
    (job,) = lsf.wait()
    assert Path("signals").read_text(encoding="utf-8").split() == ["usr2", "int", "term"]
    assert job.exit == 9
    assert job.ended - job.started >= 20 * 0.1
    assert reason(lsf, "1") == "TERM_RUNLIMIT: job killed after reaching LSF run time limit"


def test_bkill(lsf: Fake) -> None:
    submit(lsf, "sleep 60 & sleep 60; wait")
    submit(lsf, "true", "-nnodes", "4")
    lsf.wait_for("1", RUNNING)
    done = lsf.run("bkill", "1", "2", "77")
    assert (done.returncode, done.stderr) == (255, "Job <77>: No matching job found\n")
    assert done.stdout == "Job <1> is being terminated\nJob <2> is being terminated\n"
    first, second = lsf.wait()
    assert (first.exit, second.starts) == (130, 0)
    assert reason(lsf, "1") == reason(lsf, "2") == "TERM_OWNER: job killed by owner"
    assert list(list_processes(f"{lsf.config.directory}:1")) == []
    assert lsf.run("bkill", "1").stderr == "Job <1>: Job has already finished\n"


def test_bkill_sends_any_signal(lsf: Fake) -> None:
    submit(lsf, TRAPPED)
    until("ready")
    assert lsf.run("bkill", "-s", "USR2", "1").stdout == "Job <1> is being signaled\n"
    until("signals")
    assert Path("signals").read_text(encoding="utf-8") == "usr2\n"
    assert lsf.run("bkill", "-s", "KILL", "1").returncode == 0
    assert lsf.wait()[0].exit == 137


def test_a_zombie_needs_force(lsf: Fake) -> None:
    submit(lsf, "sleep 60")
    lsf.wait_for("1", RUNNING)
    lsf.order("zombie", job="1")
    lsf.order("state", job="1", word="ZOMBI")
    assert lsf.run("bjobs", "-noheader", "-o", "stat:", "1").stdout.split() == ["ZOMBI"]
    assert lsf.run("bkill", "1").returncode == 0
    assert lsf.jobs[0].plan == []
    assert lsf.run("bkill", "-r", "1").stdout == "Job <1> is being terminated\n"
    lsf.wait()
    assert reason(lsf, "1").startswith("TERM_FORCE_OWNER")


def test_brequeue_from_within_the_job(lsf: Fake) -> None:
    body = (
        'echo "$LSB_JOBID $LSB_RESTART" >> starts; [ -e again ] && exit 0; touch again; brequeue "$LSB_JOBID"; sleep 60'
    )
    submit(lsf, body, "-o", "out")
    (job,) = lsf.wait()
    assert (job.state, job.starts, job.why) == (DONE, 2, "")
    assert Path("starts").read_text(encoding="utf-8") == "1 N\n1 Y\n"
    history = lsf.run("bhist", "-l", "1").stdout.replace("\n" + " " * 21, "")
    assert "TERM_REQUEUE_OWNER: job killed and requeued by owner" in history
    assert lsf.run("brequeue", "1").stderr == "Job <1>: Job has already finished\n"
    assert lsf.run("brequeue", "-d", "1").stdout == "Job <1> is being requeued\n"


def test_exit_codes_that_requeue(lsf: Fake) -> None:
    submit(lsf, "[ -e again ] && exit 0; touch again; exit 75", "-Q", "75 99")
    (job,) = lsf.wait()
    assert (job.state, job.starts) == (DONE, 2)


def test_suspension(lsf: Fake) -> None:
    submit(lsf, "while [ ! -e go ]; do sleep 0.05; done")
    submit(lsf, "true", "-nnodes", "4")
    lsf.wait_for("1", RUNNING)
    assert lsf.run("bstop", "1", "2").stdout == "Job <1> is being stopped\nJob <2> is being stopped\n"
    assert _stats(lsf) == ["USUSP", "PSUSP"]
    assert [job.state for job in lsf.jobs] == [STOPPED, HELD]
    assert lsf.run("bresume", "1", "2").returncode == 0
    lsf.order("suspend", job="1")
    assert _stats(lsf) == ["SSUSP", "PEND"]
    assert lsf.jobs[0].state == SYSTEM_STOPPED
    Path("go").touch()
    lsf.order("resume", job="1")
    assert [job.state for job in lsf.wait()] == [DONE, DONE]


def _stats(fake: Fake) -> list[str]:
    return fake.run("bjobs", "-a", "-noheader", "-o", "stat:").stdout.split()


def test_held_until_released(lsf: Fake) -> None:
    submit(lsf, "true", "-H")
    assert _stats(lsf) == ["PSUSP"]
    lsf.run("bresume", "1")
    assert lsf.wait()[0].state == DONE


@pytest.mark.parametrize(("options", "starts"), [(("-r",), 2), ((), 1)])
def test_a_failed_host_ends_its_jobs(lsf: Fake, options: tuple[str, ...], starts: int) -> None:
    submit(lsf, "[ -e again ] && exit 0; touch again ready; sleep 60", *options)
    until("ready")
    lsf.order("host_failure", job="1")
    (job,) = lsf.wait()
    assert job.starts == starts
    assert (job.state, job.exit) == ((DONE, 0) if options else (EXITED, 137))


def test_pending_again_after_running(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf", dispatch_delay=4.0)
    submit(lsf, "[ -e again ] && exit 0; touch again ready; sleep 60")
    until("ready")
    assert _stats(lsf) == ["RUN"]
    lsf.order("preempt", job="1")
    lsf.wait_for("1", WAITING)
    assert _stats(lsf) == ["PEND"]
    assert lsf.wait()[0].starts == 2


@pytest.mark.parametrize(("fault", "term"), [("out_of_memory", "TERM_MEMLIMIT"), ("external_kill", "TERM_EXTERNAL")])
def test_killed_from_outside(lsf: Fake, fault: str, term: str) -> None:
    submit(lsf, "touch ready; sleep 60")
    until("ready")
    lsf.order(fault, job="1")
    assert lsf.wait()[0].exit == 137
    assert reason(lsf, "1").startswith(term)
    with pytest.raises(UserError, match="job 1 does not run"):
        lsf.order("out_of_memory", job="1")


def test_leaving_the_fake_ends_all_jobs(fake_of: Callable[..., Fake]) -> None:
    lsf = fake_of("lsf")
    submit(lsf, "setsid sleep 60 & sleep 60")
    lsf.wait_for("1", RUNNING)
    assert list(list_processes(f"{lsf.config.directory}:1"))
    lsf.__exit__(None, None, None)
    assert list(list_processes(f"{lsf.config.directory}:1")) == []


@pytest.mark.parametrize(("flavour", "reached"), [("csm", False), ("lsf", True)])
def test_signals_reach_ranks_only_if_they_run_on_the_scripts_host(
    fake_of: Callable[..., Fake], flavour: str, reached: bool
) -> None:
    lsf = fake_of("lsf", flavour=flavour)
    Path("rank.sh").write_text(
        "trap 'touch reached' URG; touch ready; while [ ! -e asked ]; do sleep 0.05; done; sleep 0.2; touch whole\n",
        encoding="utf-8",
    )
    submit(
        lsf, "trap 'touch asked' URG\njsrun -n 1 -r 1 -a 1 -c 1 -g 0 bash rank.sh & wait; wait", "-cwd", str(Path.cwd())
    )
    until("ready")
    assert lsf.run("bkill", "-s", "URG", "1").returncode == 0
    (job,) = lsf.wait()
    assert job.exit == 0
    assert Path("whole").exists()
    assert Path("reached").exists() is reached


def test_programs_must_ignore_an_unexpected_usr2(lsf: Fake) -> None:
    rank = "sh -c 'touch ready; while [ ! -e asked ]; do sleep 0.05; done; sleep 1; touch whole'"
    launch = f"jsrun -n 1 -r 1 -a 1 -c 1 -g 0 {rank}"
    submit(lsf, f"trap 'touch asked' USR2\n(trap '' USR2; exec {launch}) & wait $!; wait")
    until("ready")
    assert lsf.run("bkill", "-s", str(int(signal.SIGUSR2)), "1").returncode == 0
    lsf.wait()
    assert Path("whole").exists()
    for name in ("ready", "asked", "whole"):
        Path(name).unlink()
    submit(lsf, f"trap 'touch asked' USR2\n{launch} & wait $!; wait")
    until("ready")
    lsf.run("bkill", "-s", "USR2", "2")
    lsf.wait()
    assert not Path("whole").exists()  # the launcher was killed together with its ranks


def test_a_script_that_cannot_start(lsf: Fake) -> None:
    submit(lsf, "true", "-cwd", "/nowhere/at/all")
    (job,) = lsf.wait()
    assert (job.state, job.exit) == (EXITED, 127)
    assert "No such file or directory" in job.note


def test_jobs_are_reported_in_their_present_state(lsf: Fake) -> None:
    submit(lsf, "exit 7", "-J", "seven")
    (job,) = lsf.wait()
    assert isinstance(job, Job)
    assert (job.name, job.state, job.exit, job.key) == ("seven", EXITED, 7, "1")
    assert os.path.realpath(job.cwd) == os.path.realpath(Path.cwd())
