"""Tests of job scripts with a fake launcher: status files, attempts, limits, stop requests, signals and provenance."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from batch_fakes import wait_for

from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.scripts.job import Job
from hpcbench.batch.scripts.render import render, render_array
from hpcbench.batch.scripts.shape import Shape
from hpcbench.batch.sites.site import Site
from hpcbench.contract.claim import find_double_claim
from hpcbench.files import read_json

LAUNCHER = """\
#!/bin/bash
here={here}
run=${{@: -1}}
run=${{run%/run.json}}
run=${{run#runs/}}
echo "$run $HPCBENCH_ATTEMPT" >> "$here/calls"
echo $$ > "$here/pid.$run"
[ ! -e "$here/act.$run" ] || source "$here/act.$run"
"""
STOPS = 'until [ -e "runs/$run/stop" ]; do sleep 0.05; done; exit 75'
"""A worker that writes a checkpoint and ends after a stop request."""
STAYS = """\
trap '' TERM
setsid bash -c "trap '' TERM; echo \\$\\$ >> '$here/pids'; sleep 300" &
(bash -c "echo \\$\\$ >> '$here/pids'; sleep 300" &)
echo $$ >> "$here/pids"
sleep 300
"""
"""A worker that ignores SIGTERM, with a child in another session and an orphan."""
ENDS = STAYS.replace("trap '' TERM\n", "", 1)
"""A worker that ends before its child."""


class Bench:
    """A submission of one job with the runs a, b and c, and programs that its script may call."""

    def __init__(
        self,
        directory: Path,
        kind: str,
        runs: str = "abc",
        site: dict[str, Any] | None = None,
        changes: str = "",
        **job: Any,
    ):
        self.here, self.kind = directory, kind
        self.root = directory / "root"
        self.bin = directory / "bin"
        self.bin.mkdir(parents=True)
        self.program("launch", LAUNCHER.format(here=directory).removeprefix("#!/bin/bash\n"))
        for run in runs:
            (self.root / "runs" / run).mkdir(parents=True)
        (self.root / "jobs" / "j1").mkdir(parents=True)
        self.site = Site.model_validate(
            {
                "site": "bench",
                "scheduler": {"kind": kind},
                "node": {"cores": 4},
                "launcher": {"kind": "mpich"},
                "checked": "never",
                **(site or {}),
            }
        )
        fields: dict[str, Any] = {"walltime": Duration(3600), "queue": None, "account": None, **job}
        shape = Shape(1, 2, Fraction(0), 1, 1)
        self.job = Job("j1", list(runs), shape, [str(self.bin / "launch")], "python", **fields)
        if changes:
            self.job = replace(self.job, driver=str(self.driver(changes)))
        self.script = self.root / "jobs" / "j1" / "job.sh"
        self.script.write_text(render(self.job, site=self.site, study="s", root=str(self.root)), encoding="utf-8")
        self.environment = {"PATH": f"{self.bin}:{os.environ['PATH']}"}

    def program(self, name: str, text: str) -> None:
        """Add a program to PATH."""
        path = self.bin / name
        path.write_text("#!/bin/bash\n" + text, encoding="utf-8")
        path.chmod(0o755)

    def driver(self, changes: str) -> Path:
        """Write an interpreter that runs the driver with modified modules, and return its path."""
        path = self.here / "driver"
        path.write_text(
            f"""\
#!{sys.executable}
import sys
from hpcbench.job import clock, main, provenance, run_loop
{changes}
if sys.argv[1] == "-m":
    sys.exit(main.main(sys.argv[3:]))
""",
            encoding="utf-8",
        )
        path.chmod(0o755)
        return path

    def records(self, name: str, status: int = 0) -> None:
        """Add a program that records its arguments in `said`, and the current status file of the job."""
        here = self.here
        self.program(
            name,
            f"""\
if [[ $1 = requeue || $0 = */brequeue ]]; then
  echo "$(basename "$0") $*" >> {here}/said
  cp jobs/j1/status.json {here}/mark
  exit {status}
fi
[[ $1 != show ]] || echo "n1
n2"
""",
        )

    def act(self, run: str, text: str) -> None:
        (self.here / f"act.{run}").write_text(text, encoding="utf-8")

    def start(self, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", str(self.script)],
            cwd="/",
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def go(self, **environment: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(**environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def stopped(self, run: str, number: signal.Signals, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Start the script, send it a signal during the run, and wait for its end."""
        process = self.start(**environment)
        wait_for(lambda: (self.here / f"pid.{run}").exists() and (self.mark(run) or {}).get("state") == "running")
        time.sleep(0.2)  # until the fake launcher has set its traps
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def mark(self, run: str) -> dict[str, Any] | None:
        return read_json(self.root / "runs" / run / "status.json")

    @property
    def job_mark(self) -> dict[str, Any]:
        mark = read_json(self.root / "jobs" / "j1" / "status.json")
        assert mark is not None
        return mark

    def lines(self, name: str) -> list[str]:
        path = self.here / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def exits(self) -> dict[str, Any]:
        marks = {run: self.mark(run) for run in self.job.runs}
        return {run: mark["exit"] if mark else None for run, mark in marks.items()}


def gone(bench: Bench) -> bool:
    """Return whether all processes of the fake launcher have ended."""
    pids = bench.lines("pids")
    assert len(pids) == 3
    return not any(Path(f"/proc/{pid}").exists() and "Z" not in state(pid) for pid in pids)


def state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_status_files_contain_runs_times_and_hosts(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm")
    bench.records("scontrol")
    bench.act("b", "exit 3")
    bench.program("python", 'echo "not the last"; echo "$*"')
    done = bench.go(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-2]")
    assert (done.returncode, done.stdout, done.stderr) == (1, "-m hpcbench.doctor.job\n", ""), "one line by the doctor"
    host = os.uname().nodename
    mark = bench.job_mark
    assert TIME.fullmatch(mark.pop("start")) and TIME.fullmatch(mark.pop("end"))
    assert mark == {"state": "ended", "exit": 1, "attempt": 1, "id": "7", "hosts": ["n1", "n2"], "host": host}
    for run, status in {"a": 0, "b": 3, "c": 0}.items():
        mark = bench.mark(run)
        assert mark is not None and TIME.fullmatch(mark.pop("start")) and TIME.fullmatch(mark.pop("end"))
        assert mark == {"state": "ended", "exit": status, "attempt": 1, "host": host, "job": "j1", "id": "7"}
    assert bench.lines("calls") == ["a 1", "b 1", "c 1"] and not list(bench.root.rglob("*.tmp"))


def test_the_status_file_of_a_job_exists_before_its_first_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local")
    bench.act("a", f"cp jobs/j1/status.json {tmp_path}/seen")
    assert bench.go().returncode == 0
    seen = json.loads("".join(bench.lines("seen")))
    assert seen["state"] == "running" and set(seen) == {"state", "attempt", "id", "start", "hosts", "host"}
    assert seen["hosts"] == [seen["host"]] == [os.uname().nodename]


SLOTS = {"scheduler": {"kind": "lsf", "allocation": "slots"}}


@pytest.mark.parametrize(
    ("kind", "site", "environment", "id_", "hosts"),
    [
        ("slurm", {}, {"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n[1-2]"}, "9", ["n[1-2]"]),  # without scontrol
        ("slurm", {}, {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}, "7_3", [""]),
        ("lsf", {}, {"LSB_JOBID": "9", "LSB_JOBINDEX": "0", "LSB_MCPU_HOSTS": "l1 1 n1 40 n2 40 "}, "9", ["n1", "n2"]),
        ("lsf", {}, {"LSB_JOBID": "9", "LSB_JOBINDEX": "4", "LSB_MCPU_HOSTS": "n1 1 n2 1"}, "9[4]", ["n1", "n2"]),
        ("lsf", SLOTS, {"LSB_JOBID": "9", "LSB_MCPU_HOSTS": "n1 1 n2 40"}, "9", ["n1", "n2"]),
        ("lsf", {}, {"LSB_JOBID": "9", "LSB_DJOB_HOSTFILE": "{here}/hosts"}, "9", ["n1", "n2"]),
        ("flux", {}, {"FLUX_ENCLOSING_ID": "ƒ2Ab"}, "f2Ab", ["n1", "n2"]),
        ("flux", {}, {}, "1234", ["n1", "n2"]),
        ("flux", {}, {"OLD_FLUX": "1"}, "1234", ["n[1-2]"]),
        ("slurm", {}, {"SLURM_JOB_ID": 'a"b\\c\nd\x01é', "SLURM_JOB_NODELIST": '"]}, \\'}, 'a"b\\c?d???', ['"]}, \\']),
    ],
)
def test_ids_and_hosts_are_those_of_the_scheduler(
    tmp_path: Path, kind: str, site: dict[str, Any], environment: dict[str, str], id_: str, hosts: list[str]
) -> None:
    bench = Bench(tmp_path, kind, site=site)
    (tmp_path / "hosts").write_text("launch\nn1\nn1\nn2\nn2\n", encoding="utf-8")
    bench.program("scontrol", "exit 1")
    bench.program(
        "flux",
        """\
case "$*" in
  *jobid) echo 1234 ;;
  "hostlist -e local") [ -z "${OLD_FLUX:-}" ] && echo n1 n2 ;;
  *) echo "n[1-2]" ;;
esac
""",
    )
    environment = {name: value.replace("{here}", str(tmp_path)) for name, value in environment.items()}
    assert bench.go(**environment).returncode == 0
    assert (bench.job_mark["id"], bench.job_mark["hosts"]) == (id_, hosts)
    mark = bench.mark("c")
    assert mark is not None and mark["id"] == id_


def test_the_limit_of_a_run_ends_its_processes_and_the_next_run_starts(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", run_limit=Duration(2))
    bench.act("a", "sleep 300")
    bench.act("b", STAYS)
    assert bench.go().returncode == 1
    assert bench.exits() == {"a": 124, "b": 124, "c": 0}
    assert gone(bench)


def test_processes_that_a_run_leaves_are_ended_before_the_next_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local")
    bench.act("a", STAYS.replace("sleep 300\n", "sleep 0.3\n"))
    assert bench.go().returncode == 0
    assert gone(bench)


NEW_CLOCK = "main.measure_age = lambda ticks: 0.0"
"""A clock that starts when the driver does, so that a slow start of Python takes no time away from a short job."""
KEEP_LIMITS = """
def share_time(*arguments, real=run_loop.share_time):
    with open("../limits", "a") as out:
        print(real(*arguments)[0], file=out)
    return real(*arguments)
run_loop.share_time = share_time
"""


def limits(bench: Bench) -> list[int]:
    """Return the limit of each run in seconds, as the driver sets it."""
    bench.go()
    return [int(line) for line in bench.lines("limits")]


def test_runs_share_the_remaining_time_of_their_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", changes=KEEP_LIMITS, walltime=Duration(3600), stop_ahead=Duration(600))
    for limit, share in zip(limits(bench), (3000 // 3, 3000 // 2, 3000), strict=True):
        assert share - 30 < limit <= share


SHORT: list[tuple[dict[str, Any], str]] = [
    ({"run_limit": Duration(2)}, "run_limit"),
    ({"walltime": Duration(68), "stop_ahead": Duration(58)}, "walltime"),
]
"""Limits that a run reaches soon, while its job has time left."""


@pytest.mark.parametrize(("limits", "name"), SHORT)
def test_a_run_at_its_limit_writes_a_checkpoint_and_resumes_after_the_others(
    tmp_path: Path, limits: dict[str, Any], name: str
) -> None:
    bench = Bench(tmp_path, "slurm", runs="ab", changes=NEW_CLOCK, requeue=1, **limits)
    bench.records("scontrol")
    bench.act("a", STOPS)
    assert bench.go(SLURM_JOB_ID="9").returncode == 75
    assert bench.exits() == {"a": 75, "b": 0}
    assert (bench.mark("a") or {})["limit"] == name and "limit" not in (bench.mark("b") or {})
    assert bench.job_mark["state"] == "requeued" and bench.lines("said") == ["scontrol requeue 9"]
    bench.act("a", "")
    assert bench.go(SLURM_JOB_ID="9").returncode == 0
    assert bench.lines("calls") == ["a 1", "b 1", "a 2"] and bench.exits() == {"a": 0, "b": 0}
    assert "limit" not in (bench.mark("a") or {})


@pytest.mark.parametrize(("checkpoint", "state"), [(True, "requeued"), (False, "ended")])
def test_a_run_that_ignores_its_limit_is_killed_and_requeued_only_with_a_checkpoint(
    tmp_path: Path, checkpoint: bool, state: str
) -> None:
    bench = Bench(tmp_path, "slurm", runs="ab", requeue=1, run_limit=Duration(1))
    bench.records("scontrol")
    bench.act("a", f"{'mkdir -p runs/a/checkpoint/step-4; ' if checkpoint else ''}exec sleep 300")
    assert bench.go(SLURM_JOB_ID="9").returncode == (75 if checkpoint else 1)
    assert bench.exits() == {"a": 124, "b": 0} and (bench.mark("a") or {})["limit"] == "run_limit"
    assert bench.job_mark["state"] == state


def test_a_run_that_completes_at_its_limit_is_completed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", runs="a", requeue=1, run_limit=Duration(1))
    bench.act("a", STOPS.replace("75", "0"))
    assert bench.go(SLURM_JOB_ID="9").returncode == 0
    assert bench.exits() == {"a": 0} and "limit" not in (bench.mark("a") or {})


@pytest.mark.parametrize(("changes", "limit"), [({"walltime": None}, 0), ({"run_limit": Duration(50)}, 50)])
def test_a_limit_that_the_study_sets_or_none(tmp_path: Path, changes: dict[str, Any], limit: int) -> None:
    assert limits(Bench(tmp_path, "local", changes=KEEP_LIMITS, **changes)) == [limit] * 3


def test_no_run_starts_when_the_time_of_the_stop_request_has_come(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", walltime=Duration(106), stop_ahead=Duration(100), run_limit=Duration(50))
    bench.act("a", "sleep 6.5")
    assert bench.go().returncode == 75
    assert bench.exits() == {"a": 0, "b": None, "c": None}


REQUEUE = [
    ("slurm", signal.SIGUSR1, "scontrol", {"SLURM_JOB_ID": "9"}, "scontrol requeue 9"),
    (
        "slurm",
        signal.SIGUSR1,
        "scontrol",
        {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"},
        "scontrol requeue 7_3",
    ),
    ("lsf", signal.SIGURG, "brequeue", {"LSB_JOBID": "9"}, "brequeue 9"),
    ("lsf", signal.SIGURG, "brequeue", {"LSB_JOBID": "9", "LSB_JOBINDEX": "4"}, "brequeue 9[4]"),
    ("local", signal.SIGUSR1, "none", {}, None),
]


@pytest.mark.parametrize(("kind", "number", "program", "environment", "says"), REQUEUE)
def test_a_stop_request_requeues_the_job_which_continues(
    tmp_path: Path, kind: str, number: signal.Signals, program: str, environment: dict[str, str], says: str | None
) -> None:
    bench = Bench(tmp_path, kind, requeue=1)
    bench.records(program)
    bench.act("b", "echo first; echo warn >&2; " + STOPS)
    assert bench.stopped("b", number, **environment).returncode == 75
    assert bench.exits() == {"a": 0, "b": 75, "c": None}
    assert {key: bench.job_mark[key] for key in ("state", "exit", "attempt")} == {
        "state": "requeued",
        "exit": 75,
        "attempt": 1,
    }
    assert bench.lines("said") == ([says] if says else [])
    if says:  # the status file exists before the scheduler may end the script
        assert json.loads("".join(bench.lines("mark")))["state"] == "requeued"

    (tmp_path / "pid.b").unlink()
    bench.act("b", "echo second; " + STOPS)
    assert bench.stopped("b", number, **environment).returncode == 75  # the last attempt that the study allows
    assert bench.lines("calls") == ["a 1", "b 1", "b 2"]
    assert {key: bench.job_mark[key] for key in ("state", "exit", "attempt")} == {
        "state": "ended",
        "exit": 75,
        "attempt": 2,
    }
    assert bench.lines("said") == ([says] if says else [])

    bench.act("b", "echo third")
    assert bench.go(**environment).returncode == 0
    assert bench.lines("calls") == ["a 1", "b 1", "b 2", "b 3", "c 3"]
    assert bench.exits() == {"a": 0, "b": 0, "c": 0} and not (bench.root / "runs" / "b" / "stop").exists()
    job = bench.root / "jobs" / "j1"
    assert [json.loads((job / "attempts" / f"{k}.json").read_text())["state"] for k in (1, 2)] == ["requeued", "ended"]
    assert (job / "attempts" / "1.provenance").is_dir() and (job / "provenance").is_dir()
    files = {path.name: path.read_text() for path in (bench.root / "runs" / "b").glob("*.txt")}
    assert files["log.1.txt"] == "first\n" and files["log.2.txt"] == "second\n" and files["log.txt"] == "third\n"
    assert files["err.1.txt"] == "warn\n"
    assert read_json(bench.root / "runs" / "b" / "status.1.json")["exit"] == 75  # type: ignore[index]
    assert not list((bench.root / "runs" / "a").glob("*.1.*"))


def test_a_queue_that_refuses_leaves_an_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", requeue=3)
    bench.records("scontrol", status=1)
    bench.act("a", STOPS)
    assert bench.stopped("a", signal.SIGUSR1, SLURM_JOB_ID="9").returncode == 75
    assert (bench.job_mark["state"], bench.job_mark["exit"]) == ("ended", 75)


def test_without_attempts_left_a_stop_request_still_saves_the_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", requeue=0)
    bench.records("scontrol")
    bench.act("a", STOPS)
    assert bench.stopped("a", signal.SIGUSR1).returncode == 75
    assert bench.exits() == {"a": 75, "b": None, "c": None} and bench.lines("said") == []
    assert bench.job_mark["state"] == "ended"


def test_a_stop_request_that_comes_when_all_is_done_changes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", runs="a", requeue=3)
    bench.records("scontrol")
    bench.act("a", 'until [ -e "runs/$run/stop" ]; do sleep 0.05; done')
    assert bench.stopped("a", signal.SIGUSR1).returncode == 0
    assert bench.job_mark["state"] == "ended" and bench.lines("said") == []


@pytest.mark.parametrize("kind", ["flux", "slurm", "lsf", "local"])
def test_a_script_requests_a_stop_by_its_own_clock(tmp_path: Path, kind: str) -> None:
    limits = {"walltime": Duration(63), "stop_ahead": Duration(58), "run_limit": Duration(50)}
    bench = Bench(tmp_path, kind, changes=NEW_CLOCK, **limits)
    bench.act("a", STOPS)
    assert bench.go().returncode == 75
    assert bench.exits() == {"a": 75, "b": None, "c": None} and bench.job_mark["state"] == "ended"


def test_flux_reports_that_it_requeues_nothing(tmp_path: Path) -> None:
    limits = {"walltime": Duration(63), "stop_ahead": Duration(58), "run_limit": Duration(50)}
    bench = Bench(tmp_path, "flux", changes=NEW_CLOCK, requeue=3, **limits)
    bench.act("a", STOPS)
    done = bench.go()
    assert done.returncode == 75 and "Flux cannot requeue jobs" in done.stderr
    assert bench.exits() == {"a": 75, "b": None, "c": None} and bench.job_mark["state"] == "ended"


@pytest.mark.parametrize(
    ("kind", "number", "status", "act"),
    [
        ("slurm", signal.SIGTERM, 143, STAYS),
        ("local", signal.SIGINT, 130, ENDS),
        ("flux", signal.SIGHUP, 129, ENDS),
        ("lsf", signal.SIGUSR2, 140, ENDS),
    ],
)
def test_a_signal_ends_all_processes_and_status_files_are_written(
    tmp_path: Path, kind: str, number: signal.Signals, status: int, act: str
) -> None:
    bench = Bench(tmp_path, kind)
    bench.act("b", act)
    assert bench.stopped("b", number).returncode == status
    assert bench.exits() == {"a": 0, "b": status, "c": None}
    assert (bench.job_mark["state"], bench.job_mark["exit"]) == ("ended", status)
    assert gone(bench)


def test_a_preempted_run_may_leave_by_itself_and_slurm_puts_the_job_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", requeue=3)
    bench.records("scontrol")
    bench.act("b", STOPS)
    assert bench.stopped("b", signal.SIGTERM).returncode == 143
    assert bench.exits() == {"a": 0, "b": 75, "c": None}
    assert bench.job_mark["state"] == "ended" and bench.lines("said") == []


def test_a_script_that_was_killed_counts_as_an_attempt(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local")
    bench.act("b", "echo $PPID > $here/group; sleep 300")
    assert bench.stopped("b", signal.SIGKILL).returncode == -signal.SIGKILL
    os.killpg(int(bench.lines("group")[0]), signal.SIGKILL)
    assert bench.job_mark["state"] == "running"
    bench.act("b", "")
    assert bench.go().returncode == 0
    assert bench.lines("calls") == ["a 1", "b 1", "b 2", "c 2"] and bench.job_mark["attempt"] == 2
    assert (bench.root / "runs" / "b" / "status.1.json").is_file()


def test_no_status_is_lost_among_many_signals(tmp_path: Path) -> None:
    """The builtin `wait` returns the signal's number. In bash 5.2, `wait` loses the status and may hang."""
    runs = "abcdefghijkl"
    bench = Bench(tmp_path, "slurm", runs, site={"setup": ["trap : USR2"]})
    expected = {run: 40 + k for k, run in enumerate(runs)}
    for run, status in expected.items():
        bench.act(run, f"sleep 0.1; exit {status}")
    bench.act("l", STOPS.replace("75", str(expected["l"])))
    process = bench.start()
    deadline = time.monotonic() + 120
    wait_for(lambda: (bench.here / "pid.a").exists())
    while process.poll() is None:
        assert time.monotonic() < deadline, "the script hangs"
        process.send_signal(signal.SIGUSR2)
        if (bench.here / "pid.l").exists():
            process.send_signal(signal.SIGUSR1)
        time.sleep(0.0005)
    process.communicate()
    assert (process.returncode, bench.exits()) == (75, expected)
    assert (bench.job_mark["state"], bench.job_mark["exit"]) == ("ended", 75)


def test_a_signal_to_all_processes_of_a_job_also_ends_the_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "lsf")
    bench.act("b", "trap 'exit 1' INT; sleep 300 & wait")
    process = bench.start()
    wait_for(lambda: (bench.here / "pid.b").exists())
    time.sleep(0.2)  # until the fake launcher has set its trap
    process.send_signal(signal.SIGINT)
    os.killpg(os.getpgid(int(bench.lines("pid.b")[0])), signal.SIGINT)
    process.communicate(timeout=60)
    assert (process.returncode, bench.exits()) == (130, {"a": 0, "b": 130, "c": None})


def test_a_run_that_is_suspended_is_waited_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "lsf")
    bench.act("b", "sleep 0.5; exit 5")
    process = bench.start()
    wait_for(lambda: bench.lines("pid.b"))
    pid = int(bench.lines("pid.b")[0])
    os.killpg(os.getpgid(pid), signal.SIGSTOP)
    time.sleep(1.5)
    assert bench.mark("b") == {**(bench.mark("b") or {}), "state": "running"} and process.poll() is None
    os.killpg(os.getpgid(pid), signal.SIGCONT)
    process.communicate(timeout=60)
    assert (process.returncode, bench.exits()) == (1, {"a": 0, "b": 5, "c": 0})


def test_a_killed_launcher_is_not_a_time_limit(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm")
    bench.act("a", "kill -KILL $$")
    assert bench.go().returncode == 1
    assert bench.exits() == {"a": 137, "b": 0, "c": 0}


def test_teardown_comes_last_whatever_happened(tmp_path: Path) -> None:
    lines = [f"echo torn >> {tmp_path}/torn", "exit 3"]
    bench = Bench(tmp_path / "fails", "local", site={"teardown": lines, "setup": ["set -e"]})
    bench.act("a", "exit 9")
    assert bench.go().returncode == 1
    bench = Bench(tmp_path / "setup", "local", site={"teardown": lines, "setup": ["exit 4"]})
    assert bench.go().returncode == 4
    bench = Bench(tmp_path / "signal", "local", site={"teardown": lines})
    bench.act("a", "sleep 300")
    assert bench.stopped("a", signal.SIGTERM).returncode == 143
    bench = Bench(tmp_path / "again", "slurm", site={"teardown": lines}, requeue=1)
    bench.program("scontrol", f"cat {tmp_path}/torn | wc -l > {tmp_path}/count")
    bench.act("a", STOPS)
    assert bench.stopped("a", signal.SIGUSR1).returncode == 75
    assert (tmp_path / "torn").read_text().splitlines() == ["torn"] * 4
    assert (tmp_path / "count").read_text().strip() == "4"  # before the job is requeued, which may end the script
    assert bench.job_mark["state"] == "requeued"


def test_a_module_that_does_not_load_ends_the_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local", site={"modules": ["cuda/12"]})
    done = bench.go()
    assert (done.returncode, bench.job_mark["exit"], bench.lines("calls")) == (1, 1, [])


def test_provenance_contains_no_secrets(tmp_path: Path) -> None:
    setup = ['module() { echo "Currently Loaded: $*"; }', "export MY_API_KEY=s3cret my_token=s3cret"]
    bench = Bench(tmp_path, "slurm", site={"setup": setup, "environment": {"NCCL_NET": "a b"}})
    bench.program("nvidia-smi", "echo a GPU; exit 3")
    bench.program("python", "echo Python 3")  # Debian has only python3
    bench.program("scontrol", 'echo "JobId=$3"')
    hidden = {"DB_PASSWORD": "s3cret", "AWS_SECRET_ACCESS": "s3cret", "http_proxy": "http://me:s3cret@proxy:1"}
    done = bench.go(SLURM_JOB_ID="9", PLAIN="it's\nme", **hidden)
    assert (done.returncode, done.stderr) == (0, "")
    contents = {path.stem: path.read_text() for path in (bench.root / "jobs" / "j1" / "provenance").iterdir()}
    assert set(contents) == {"environment", "modules", "limits", "system", "nvidia-smi", "python", "job"}
    assert contents["modules"] == "Currently Loaded: list\n" and contents["nvidia-smi"] == "a GPU\n"
    assert contents["job"] == "JobId=9\n"
    assert "s3cret" not in "".join(contents.values())
    lines = contents["environment"].splitlines()
    assert "NCCL_NET=a\\ b" in lines and "PLAIN=$'it\\'s\\nme'" in lines and "# http_proxy is left out" in lines
    names = [line.removeprefix("# ").removesuffix(" is left out").partition("=")[0] for line in lines]
    assert names == sorted(names) and {"HPCBENCH_ATTEMPT", "OMP_NUM_THREADS", *hidden} <= set(names)


def test_a_command_that_hangs_keeps_no_run_waiting(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local", changes="provenance.LIMIT = 1.0")
    bench.program("nvidia-smi", f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 300")
    done = bench.go()
    assert done.returncode == 0 and "provenance: not complete" in done.stderr
    assert bench.exits() == {"a": 0, "b": 0, "c": 0}
    assert state(bench.lines("pid")[0]) == "Z"
    assert (bench.root / "jobs" / "j1" / "provenance" / "environment.txt").read_text()


def test_an_element_of_an_array_runs_its_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", requeue=1)
    bench.records("scontrol")
    other = Job("j0", ["x"], bench.job.shape, ["false"], "python", Duration(3600), None, None, requeue=1)
    script, jobs = render_array("all", [other, bench.job], site=bench.site, study="s", root=str(bench.root))
    (bench.root / "arrays").mkdir()
    (bench.root / "arrays" / "all.txt").write_text(jobs)
    bench.script = bench.root / "arrays" / "all.sh"
    bench.script.write_text(script)
    bench.act("b", STOPS)
    element = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    assert bench.stopped("b", signal.SIGUSR1, **element).returncode == 75  # the script is the process of the job
    assert bench.lines("said") == ["scontrol requeue 7_2"] and bench.job_mark["id"] == "7_2"
    assert (bench.root / "jobs" / "j1" / "out.log").exists()
    for index in ("3", "", "x"):
        done = bench.go(SLURM_ARRAY_TASK_ID=index)
        assert done.returncode == 1 and "was this submitted as an array?" in done.stderr


NAME = "s-3f2a1c-j1"
"""Name of a submitted job, different for each submission."""


def claims(bench: Bench) -> list[str]:
    return sorted(path.name for path in (bench.root / "jobs" / "j1" / "claims").iterdir())


def test_one_of_many_simultaneous_copies_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "local", runs="a")
    bench.act("a", "sleep 1")
    at_once = [bench.start() for _ in range(6)]
    ends = [(process.communicate(timeout=60)[1], process.returncode) for process in at_once]
    assert sorted(status for _, status in ends) == [0, *[73] * 5]
    assert sum(": see jobs/j1/claims/1" in output and "is running in job " in output for output, _ in ends) == 5
    assert bench.lines("calls") == ["a 1"] and claims(bench) == ["1", "1.end"]
    assert bench.job_mark["attempt"] == 1


@pytest.mark.parametrize(
    ("kind", "lives", "over", "silent"),
    [
        ("slurm", "echo RUNNING", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "exit 1"),
        ("slurm", "echo COMPLETING", "echo CANCELLED", "echo 'Socket timed out'; exit 1"),
        ("lsf", "echo JOBID USER STAT; echo 7 me UNKWN q", "echo 'Job <7> is not found'; exit 255", "exit 255"),
        (
            "lsf",
            "echo JOBID USER STAT; echo 7 me SSUSP q",
            "echo JOBID USER STAT; echo 7 me EXIT q",
            "exit 1",
        ),
        ("flux", "echo RUN", "echo COMPLETED", "echo 'Connection refused'; exit 1"),
    ],
)
def test_a_job_is_left_to_a_live_holder_and_taken_from_an_ended_one(
    tmp_path: Path, kind: str, lives: str, over: str, silent: str
) -> None:
    bench = Bench(tmp_path, kind, runs="a")
    program = {"slurm": "squeue", "lsf": "bjobs", "flux": "flux"}[kind]
    names = {"slurm": "SLURM_JOB_ID", "lsf": "LSB_JOBID", "flux": "FLUX_ENCLOSING_ID"}

    def set_answer(text: str) -> None:
        bench.program(program, f"[[ $* != *hostlist* ]] || exit 1\n{text}\n")

    set_answer(lives)
    bench.act("a", "sleep 300")
    first = bench.start(**{names[kind]: "7"})
    wait_for(lambda: (bench.mark("a") or {}).get("state") == "running")
    second = bench.go(**{names[kind]: "8"})
    assert second.returncode == 73 and "is running in job 7: see jobs/j1/claims/1" in second.stderr
    assert bench.job_mark["id"] == "7"
    first.kill()  # without information about its end
    first.communicate(timeout=60)
    set_answer(silent)
    third = bench.go(**{names[kind]: "8"})
    assert third.returncode == 73
    assert (
        "may still be running in job 7, whose state is unknown: remove jobs/j1/claims/1 if job 7 is "
        "over" in third.stderr
    )
    set_answer(over)
    (tmp_path / "act.a").unlink()
    assert bench.go(**{names[kind]: "8"}).returncode == 0
    assert (bench.job_mark["id"], bench.job_mark["attempt"], claims(bench)) == ("8", 2, ["1", "2", "2.end"])


def test_a_job_that_one_call_submitted_twice_runs_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", runs="a")
    bench.act("a", "exit 1")
    assert bench.go(SLURM_JOB_ID="7", SLURM_JOB_NAME=NAME).returncode == 1
    copy = bench.go(SLURM_JOB_ID="8", SLURM_JOB_NAME=NAME)
    assert copy.returncode == 73 and "was claimed more than once" in copy.stderr
    assert bench.go(SLURM_JOB_ID="7", SLURM_JOB_NAME=NAME).returncode == 1  # requeued
    assert bench.go(SLURM_JOB_ID="9", SLURM_JOB_NAME=f"{NAME}.2").returncode == 1  # submitted again
    assert bench.go(SLURM_JOB_ID="10", SLURM_JOB_NAME=NAME).returncode == 73
    assert bench.go(SLURM_JOB_ID="11", SLURM_JOB_NAME="s-j1").returncode == 1  # by hand
    assert bench.lines("calls") == [f"a {k}" for k in (1, 2, 3, 4)]


def test_a_copy_that_was_taken_for_ended_writes_no_status(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", runs="ab")
    bench.program("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    # without this variable, the end of the second run does not kill it, as on another node
    away = "exec env -u HPCBENCH_RUN bash -c 'until [ -e $0/go ]; do sleep 0.05; done' \"$here\""
    bench.act("a", f"[ $SLURM_JOB_ID = 8 ] || {away}")
    first = bench.start(SLURM_JOB_ID="7")
    wait_for(lambda: bench.lines("calls") == ["a 1"])
    assert bench.go(SLURM_JOB_ID="8").returncode == 0
    time.sleep(1.1)  # status files have a resolution of one second
    (tmp_path / "go").touch()
    first.communicate(timeout=60)
    assert first.returncode == 73
    assert (bench.job_mark["id"], bench.job_mark["attempt"], bench.exits()) == ("8", 2, {"a": 0, "b": 0})
    assert bench.lines("calls") == ["a 1", "a 2", "b 2"]
    mark = bench.mark("b")
    assert mark is not None
    assert find_double_claim(bench.root / "jobs" / "j1", mark["start"], mark["end"]) is not None


def test_while_a_job_is_suspended_its_limits_stand_still(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "slurm", runs="a", changes="clock.GAP = 3.0", run_limit=Duration(4))
    bench.act("a", "until [ -e $here/go ]; do sleep 0.05; done")
    process = bench.start(SLURM_JOB_ID="7")
    wait_for(lambda: (bench.mark("a") or {}).get("state") == "running")
    family = [process.pid, *children(process.pid)]
    assert len(family) == 2, "the script and its driver"
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(6)  # longer than the limit of the run
    for pid in family:
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.5)
    (tmp_path / "go").touch()
    process.communicate(timeout=60)
    assert (process.returncode, bench.exits()) == (0, {"a": 0})
