"""Tests of commands and daemons that die or hang. No job is lost, submitted twice, or shown in a wrong state."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_fakes import wait_for
from on_slurm import PATIENCE, OnSlurm, hpcbench, listed, report, unfold, wait_over, wait_run
from slurm_on_one_machine import Cluster

from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State

RUN = "r1-baseline"
SHIM = """\
#!/bin/bash
here=$(dirname "$0")
case " $* " in *" --test-only "*) exec {sbatch} "$@" ;; esac # asks, and hands nothing in
echo >> "$here/calls"
case $(wc -l < "$here/calls") in
  "$KILL_BEFORE") kill -KILL $PPID ;;
  "$KILL_AFTER") {sbatch} "$@" > "$here/said" && kill -KILL $PPID ;;
  "$HANG_AFTER") {sbatch} "$@" > "$here/said"; : > "$here/hangs"; exec sleep 600 ;;
  *) exec {sbatch} "$@" ;;
esac
"""
"""An sbatch that kills its caller or hangs. The environment specifies at which call."""


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> OnSlurm:
    """A study of four jobs with one run each, whose name is unique among the tests."""
    place = OnSlurm(tmp_path / "place", cluster)
    name = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]").replace("_", "-")[:60]
    place.write_study(study=name, matrix={"scheme": ["baseline"]}, repeats=4)
    return place


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the faulty sbatch, at the beginning of PATH."""
    sbatch = shutil.which("sbatch")
    directory = tmp_path / "shim"
    directory.mkdir()
    (directory / "sbatch").write_text(SHIM.format(sbatch=sbatch), encoding="utf-8")
    (directory / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


def again(place: OnSlurm) -> str:
    """Run the same command again, and return its output."""
    done = hpcbench("submit", "study.yaml", "--site", "site.yaml", "--out", "out", cwd=place.directory)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_once(place: OnSlurm, cluster: Cluster) -> None:
    """Check that each job was submitted once, is recorded with Slurm's id, and completes."""
    root = place.directory / "out" / "001"
    assert [path.name for path in (place.directory / "out").iterdir() if path.name.isdigit()] == ["001"]
    tracked = wait_over(root)
    assert {status.state for status in (*tracked.jobs.values(), *tracked.runs.values())} == {State.COMPLETED}
    assert sorted(tracked.ids.values()) == listed(cluster, tracked.submission.name)
    assert len(tracked.ids) == 4 and len(set(tracked.ids.values())) == 4
    runs = [call["run"] for call in place.calls if "run" in call]
    assert sorted(runs) == [f"r{k}-baseline" for k in (1, 2, 3, 4)], "each ran once"


@pytest.mark.parametrize(
    ("when", "taken"), [("KILL_BEFORE", 2), ("KILL_AFTER", 3), ("HANG_AFTER", 3)], ids=["before", "after", "hangs"]
)
def test_a_killed_submit_is_continued(
    place: OnSlurm, cluster: Cluster, shim: Path, monkeypatch: pytest.MonkeyPatch, when: str, taken: int
) -> None:
    argv = [sys.executable, "-m", "hpcbench", "submit", "study.yaml", "--site", "site.yaml", "--out", "out"]
    with subprocess.Popen(argv, cwd=place.directory, env={**os.environ, when: "3"}, start_new_session=True) as process:
        if when == "HANG_AFTER":
            wait_for((shim / "hangs").exists, PATIENCE)
            process.kill()
        assert process.wait(PATIENCE) == -9
    root = place.directory / "out" / "001"
    ledger = Ledger(root)
    assert [job.id is None for job in ledger.submitted] == [False, False, True]
    tracked = track(root)
    assert len(listed(cluster, tracked.submission.name)) == taken
    assert tracked.jobs["j0003-r3"].state in (State.UNKNOWN, State.RUNNING, State.COMPLETED)
    assert "not submitted" in tracked.jobs["j0004-r4"].reason
    output = again(place)
    jobs = "job" if taken == 3 else "jobs"
    assert f"continued an interrupted submission: submitted {4 - taken} more {jobs}" in output
    check_once(place, cluster)


def test_the_job_of_an_sbatch_that_hangs_is_looked_up(
    place: OnSlurm, cluster: Cluster, shim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.batch.schedulers.client.PATIENCE", 5.0)
    monkeypatch.setenv("HANG_AFTER", "2")
    place.submit()
    assert (shim / "hangs").exists()
    check_once(place, cluster)


def test_two_submits_at_the_same_time_submit_once(place: OnSlurm, cluster: Cluster) -> None:
    cluster.run(["scontrol", "update", "partitionname=batch", "state=down"], check=True)
    argv = [sys.executable, "-m", "hpcbench", "submit", "study.yaml", "--site", "site.yaml", "--out", "out"]
    both = [subprocess.Popen(argv, cwd=place.directory, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("already submitted and not over: nothing was submitted" in output for output in outputs) == 1
    cluster.run(["scontrol", "update", "partitionname=batch", "state=up"], check=True)
    check_once(place, cluster)


@pytest.fixture
def controlled(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whose controller is restarted after the test."""
    yield cluster
    if cluster.run(["scontrol", "ping"]).returncode:
        cluster.start_controller()


def test_without_a_controller_no_job_is_shown_as_lost_or_completed(place: OnSlurm, controlled: Cluster) -> None:
    place.acts({"baseline": "wait"})
    place.write_study(study="away", matrix={"scheme": ["baseline"]}, repeats=2)
    place.write_site(scheduler={"directives": {"--exclusive": None, "--nodelist": "n1"}})
    argv = [sys.executable, "-m", "hpcbench"]
    options = {"cwd": place.directory, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    submit = subprocess.Popen(
        [*argv, "submit", "study.yaml", "--site", "site.yaml", "--out", "out", "--wait"], **options
    )
    root = place.directory / "out" / "001"
    wait_for((root / "handed" / "0002.json").exists, PATIENCE)
    watch = subprocess.Popen([*argv, "status", "--watch", "out/001"], **options)
    wait_run(root, "r1-baseline")
    wait_for(lambda: track(root).jobs["j0002-r2"].reason in ("Resources", "Priority"), PATIENCE)
    controlled.stop_controller()
    shown = hpcbench("status", root, cwd=root)
    assert shown.returncode == 1
    for last in ("running", "pending"):
        message = f"Slurm cannot be queried at the moment; last seen {last}"
        assert unfold(shown.stdout).count(message) == 2, shown.stdout  # once for the job, once for its run
    assert {run["state"] for run in report(root).values()} == {"unknown"}
    (place.directory / "go").touch()
    wait_for(lambda: track(root, ask=False).jobs["j0001-r1"].state is State.COMPLETED, PATIENCE)
    tracked = track(root)
    assert [status.state for status in tracked.jobs.values()] == [State.COMPLETED, State.UNKNOWN], (
        "the status file of the first job reports its end"
    )
    assert submit.poll() is None and watch.poll() is None
    controlled.start_controller()
    for process in (submit, watch):
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, output
        assert "2 runs: 2 completed" in output and "lost" not in output, output
    assert {status.state for status in track(root).runs.values()} == {State.COMPLETED}
