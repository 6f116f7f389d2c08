"""Tests of job drivers that find no Python, are killed or signaled early, or run on a full disk."""

import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batch_fakes import wait_for
from test_full_disk import FULL, small  # noqa: F401 (a fixture)
from test_scripts import STAYS, Bench, children, gone

from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.scripts.render import render
from hpcbench.contract.mark import read_mark
from hpcbench.job.clock import JobClock
from hpcbench.job.provenance import _print_variables


def use_driver(bench: Bench, driver: str, **changes: Any) -> None:
    """Rewrite the job's script so that a different interpreter runs the driver."""
    bench.job = replace(bench.job, driver=driver, **changes)
    bench.script.write_text(render(bench.job, site=bench.site, study="s", root=str(bench.root)), encoding="utf-8")


def use_slow_driver(bench: Bench, seconds: float) -> None:
    """Make the driver's Python start slowly, as from a busy file system."""
    path = bench.here / "slow"
    code = f'[ "$1" = -c ] && exit 0\ntouch {bench.here}/starts\nsleep {seconds}\nexec {sys.executable} "$@"\n'
    path.write_text(f"#!/bin/bash\n{code}", encoding="utf-8")
    path.chmod(0o755)
    use_driver(bench, str(path))


def find_driver(bench: Bench, process: "subprocess.Popen[str]") -> int:
    """Return the process id of the driver, once a run has started."""
    wait_for(lambda: any((bench.mark(run) or {}).get("state") == "running" for run in bench.job.runs))
    wait_for(lambda: len(children(process.pid)) == 1)
    return children(process.pid)[0]


def test_without_a_python_the_job_has_failed_and_says_why(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", site={"teardown": [f"touch {tmp_path}/torn"]}, requeue=1)
    bench.records("scontrol")
    bench.program("python", "echo no hpcbench here >&2; exit 1")
    use_driver(bench, str(tmp_path / "gone" / "python"))
    for attempt in (1, 2):
        done = bench.go(SLURM_JOB_ID="7")
        assert done.returncode == 127 and "no hpcbench here" in done.stderr and "gone/python" in done.stderr
        status = read_mark(bench.root / "jobs" / "j1")
        assert status is not None
        assert (status.state, status.exit, status.attempt) == ("ended", 127, attempt)
        assert status.why == "exit 127, and no Python here runs hpcbench.job: see jobs/j1/out.log"
    assert bench.lines("calls") == [] and (tmp_path / "torn").exists() and bench.lines("said") == []
    use_driver(bench, sys.executable)
    assert bench.go(SLURM_JOB_ID="7").returncode == 0
    assert bench.job_mark["attempt"] == 3 and bench.lines("calls") == ["a 3", "b 3", "c 3"]


def test_a_python_of_the_ranks_takes_the_place_of_one_that_is_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local")
    bench.program("python", f'exec {sys.executable} "$@"')
    use_driver(bench, str(tmp_path / "gone" / "python"))
    assert bench.go().returncode == 0
    assert bench.exits() == {"a": 0, "b": 0, "c": 0}


def test_without_a_python_the_status_of_the_holder_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local", runs="a")
    bench.act("a", "until [ -e $here/go ]; do sleep 0.05; done")
    first = bench.start()
    find_driver(bench, first)
    script = bench.script.read_text(encoding="utf-8")
    bench.program("python", "exit 1")
    use_driver(bench, "/none/python")
    assert bench.go().returncode == 127
    assert bench.job_mark["state"] == "running"
    bench.script.write_text(script, encoding="utf-8")
    assert bench.go().returncode == 73  # a refused script writes nothing
    assert bench.job_mark["state"] == "running"
    (tmp_path / "go").touch()
    first.communicate(timeout=60)
    assert (first.returncode, bench.job_mark["exit"]) == (0, 0)


def test_a_job_that_was_taken_twice_keeps_its_status_when_the_copy_fails_early(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", runs="a", site={"setup": ["exit $STATUS"]})
    names = {"SLURM_JOB_NAME": "s-3f2a1c-j1"}
    assert bench.go(SLURM_JOB_ID="7", STATUS="4", **names).returncode == 4
    assert bench.go(SLURM_JOB_ID="8", STATUS="5", **names).returncode == 5
    assert (bench.job_mark["exit"], bench.job_mark["id"]) == (4, "7")


@pytest.mark.parametrize("loses_python", [False, True])
def test_a_driver_that_is_killed_leaves_no_process_and_an_end(tmp_path: Path, loses_python: bool) -> None:
    bench = Bench(tmp_path, "slurm", requeue=1)
    bench.records("scontrol")
    driver = tmp_path / "python"
    driver.write_text(f'#!/bin/bash\nexec {sys.executable} "$@"\n', encoding="utf-8")
    driver.chmod(0o755)
    use_driver(bench, str(driver))
    bench.act("b", STAYS)
    process = bench.start(SLURM_JOB_ID="7")
    wait_for(lambda: len(bench.lines("pids")) == 3)
    if loses_python:
        driver.unlink()
    os.kill(find_driver(bench, process), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 137
    assert (bench.job_mark["state"], bench.job_mark["exit"], bench.job_mark["attempt"]) == ("ended", 137, 1)
    assert bench.lines("said") == []
    if loses_python:
        assert "no Python here" in bench.job_mark["why"]
        for pid in bench.lines("pids"):
            os.kill(int(pid), signal.SIGKILL)
        return
    assert bench.exits() == {"a": 0, "b": 137, "c": None} and gone(bench)
    bench.act("b", "")
    assert bench.go(SLURM_JOB_ID="7").returncode == 0
    assert bench.job_mark["attempt"] == 2


@pytest.mark.parametrize(
    ("kind", "number", "status"),
    [("slurm", signal.SIGTERM, 143), ("local", signal.SIGINT, 130), ("lsf", signal.SIGUSR2, 140)],
)
def test_a_signal_before_python_is_ready_is_not_lost(
    tmp_path: Path, kind: str, number: signal.Signals, status: int
) -> None:
    bench = Bench(tmp_path, kind, site={"setup": [f"touch {tmp_path}/set"]})
    use_slow_driver(bench, 1.0)
    process = bench.start()
    wait_for(lambda: (tmp_path / "starts").exists() and len(children(process.pid)) == 1)
    [driver] = children(process.pid)
    os.kill(driver, number)  # LSF sends the signal to all processes
    process.send_signal(number)
    process.communicate(timeout=60)
    assert (process.returncode, bench.job_mark["exit"], bench.lines("calls")) == (status, status, [])


def test_a_stop_request_before_python_is_ready_starts_no_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", requeue=1)
    bench.records("scontrol")
    use_slow_driver(bench, 1.0)
    process = bench.start(SLURM_JOB_ID="7")
    wait_for(lambda: (tmp_path / "starts").exists())
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=60)
    assert (process.returncode, bench.job_mark["state"], bench.lines("calls")) == (75, "requeued", [])
    assert bench.lines("said") == ["scontrol requeue 7"]


def test_a_script_that_is_killed_takes_its_run_along(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local")
    bench.act("b", STAYS)
    process = bench.start()
    wait_for(lambda: len(bench.lines("pids")) == 3)
    driver = find_driver(bench, process)
    process.kill()
    process.communicate(timeout=60)
    wait_for(lambda: gone(bench) and not Path(f"/proc/{driver}").exists())
    assert bench.job_mark["state"] == "running" and bench.lines("calls") == ["a 1", "b 1"]


def test_a_driver_whose_script_is_gone_touches_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local")
    arguments = shlex.split("--scheduler local --job j1 --id 1 --script 1 --pipes 0 1")
    done = subprocess.run(
        [sys.executable, "-m", "hpcbench.job", *arguments], cwd=bench.root, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 137 and list((bench.root / "jobs" / "j1").iterdir()) == [bench.script]


def test_the_commands_of_a_job_may_be_longer_than_a_command_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local", runs="a")
    text = bench.script.read_text(encoding="utf-8")
    call = next(line for line in text.splitlines() if line.startswith("run a "))
    padded = call.replace('"${launch[@]}"', f'env "PADDING={"x" * 100_000}" "${{launch[@]}}"')
    bench.script.write_text(text.replace(call, "\n".join([call, *[padded] * 30])), encoding="utf-8")
    done = bench.go()
    assert (done.returncode, bench.lines("calls")) == (0, ["a 1"]), done.stderr


def test_on_a_full_disk_with_the_log_on_it_the_end_is_recorded(small: Path) -> None:  # noqa: F811
    bench = Bench(small / "b", "slurm", runs="ab")
    bench.act("a", f"head -c 9m /dev/zero > {small}/filler; exit 1")
    log = bench.root / "jobs" / "j1" / "out.log"
    with log.open("wb") as out:
        done = subprocess.run(["bash", bench.script], env=bench.environment, stdout=out, stderr=out, check=False)
    assert done.returncode == 1
    assert (bench.job_mark["state"], bench.job_mark["why"]) == ("ended", f"{small}: {FULL}")
    assert bench.exits() == {"a": 1, "b": 74}


def test_provenance_that_cannot_be_written_stops_no_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local", runs="a")
    (bench.root / "jobs" / "j1" / "provenance").write_text("no directory", encoding="utf-8")
    assert bench.go().returncode == 0


def test_an_attempt_whose_provenance_is_kept_already_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local", runs="a")
    bench.act("a", "exit 1")
    assert bench.go().returncode == 1
    (bench.root / "jobs" / "j1" / "attempts" / "1.provenance" / "x").mkdir(parents=True)
    assert bench.go().returncode == 1
    assert bench.lines("calls") == ["a 1", "a 2"]


def test_what_an_interpreter_prints_may_be_any_bytes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local", runs="a")
    bench.program("python", r"printf 'Python \377\303\251\n'")
    process = subprocess.run(
        ["bash", str(bench.script)],
        env={**bench.environment, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=False,
    )
    assert process.returncode == 0 and process.stdout.startswith(b"Python ")


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("API_TOKEN", "x", True),
        ("session_cookie", "x", True),
        ("HTTP_AUTH", "x", True),
        ("OPTIONS", "--header TOKEN=x", True),
        ("proxy", "http://me:x@host", True),
        ("PLAIN", "a token of x", False),
        ("url", "http://host:80/", False),
    ],
)
def test_secrets_in_names_and_values_are_left_out(name: str, value: str, hidden: bool) -> None:
    command = _print_variables({name: value})
    done = subprocess.run(command, env={name: value, "PATH": os.environ["PATH"]}, capture_output=True, check=True)
    assert (done.stdout.decode() == f"# {name} is left out\n") is hidden


def test_time_before_a_run_counts_however_long_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = JobClock(5.0)
    now[0] += 30
    assert clock.read(watched=False) == 35
    now[0] += 30  # suspended
    assert clock.read() == 35
    now[0] += 1
    assert clock.read() == 36


def test_the_limit_of_a_run_is_recorded_when_a_signal_ends_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", runs="a", run_limit=Duration(1))
    bench.act("a", 'until [ -e "runs/$run/stop" ]; do sleep 0.05; done; touch $here/asked; exec sleep 60')
    process = bench.start()
    wait_for(lambda: (tmp_path / "asked").exists())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    status = bench.mark("a") or {}
    assert (status["exit"], status["limit"]) in ((143, "run_limit"), (124, "run_limit"))


def test_modules_are_recorded_whatever_bash_env_names(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("echo from BASH_ENV\n", encoding="utf-8")
    bench = Bench(tmp_path, "local", runs="a")
    assert bench.go(BASH_ENV=str(tmp_path / "rc")).returncode == 0
    place = bench.root / "jobs" / "j1" / "provenance"
    assert "from BASH_ENV" not in (place / "limits.txt").read_text() + (place / "environment.txt").read_text()


def test_lines_of_the_site_have_the_number_of_the_attempt(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local", runs="a", site={"setup": [f"echo $HPCBENCH_ATTEMPT >> {tmp_path}/attempts"]})
    bench.act("a", "exit 1")
    for _ in range(3):
        assert bench.go().returncode == 1
    assert bench.lines("attempts") == ["1", "2", "3"] and bench.lines("calls") == ["a 1", "a 2", "a 3"]
