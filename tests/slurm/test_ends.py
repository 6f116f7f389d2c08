"""Tests of job ends on a real Slurm (limits, signals, users, other jobs), and of the states afterwards."""

from pathlib import Path
from typing import Any

import pytest
from on_slurm import OnSlurm, hpcbench, listed, report, unfold, wait_over, wait_run
from slurm_on_one_machine import Cluster

from hpcbench.batch.retry import retry
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.files import read_json

SOON = {"walltime": "1m", "stop_ahead": "50s", "run_limit": "1m"}
"""Limits of a job to which Slurm sends the signal at its first check."""
RUN = "r1-baseline"


class Slow:
    """Submissions of one job each, all submitted at once because each job waits long for its signal or its end."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.cluster = cluster
        self._folder = folder
        self.places: dict[str, OnSlurm] = {}
        self.roots: dict[str, Path] = {}
        self.submit("late", {"baseline": "sleep"}, walltime="50m")
        self.submit("heard", {"naive-zfp8": "stop"}, matrix={"scheme": ["baseline", "naive-zfp8", "mzhybrid"]}, **SOON)
        self.submit("goes-on", {"naive-zfp8": "stop"}, requeue=1, matrix={"scheme": ["baseline", "naive-zfp8"]}, **SOON)
        self.submit("never-done", {"baseline": "always stop"}, requeue=1)
        self.submit("failed", {"baseline": "fail"})
        self.submit("ended", {"baseline": "sleep"})
        wait_run(self.roots["late"], RUN)
        cluster.end_time(self.id("late"), 1)

    def submit(self, name: str, acts: dict[str, str], **study: Any) -> None:
        place = self.places[name] = OnSlurm(self._folder / name, self.cluster)
        place.write_study(**{"study": name, "matrix": {"scheme": ["baseline"]}, **study})
        place.acts(acts)
        self.roots[name] = place.submit()

    def id(self, name: str) -> str:
        return track(self.roots[name]).ids["j0001-r1"]


@pytest.fixture(scope="module")
def slow(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Slow:
    return Slow(tmp_path_factory.mktemp("slow"), cluster)


def test_a_job_that_its_user_ends_by_hand_is_cancelled(slow: Slow) -> None:
    root = slow.roots["ended"]
    wait_run(root, RUN)
    slow.cluster.run(["scancel", slow.id("ended")], check=True)
    tracked = wait_over(root)
    assert (tracked.jobs["j0001-r1"].state, tracked.runs[RUN].state) == (State.CANCELLED, State.CANCELLED)
    assert tracked.jobs["j0001-r1"].reason.startswith("CANCELLED")
    assert report(root)[RUN]["state"] == "cancelled"


def test_a_run_that_fails_says_why(slow: Slow) -> None:
    root = slow.roots["failed"]
    tracked = wait_over(root)
    assert (tracked.jobs["j0001-r1"].state, tracked.runs[RUN].state) == (State.FAILED, State.FAILED)
    assert tracked.runs[RUN].reason.startswith("exit status 3: boom: the reason")
    shown = hpcbench("status", root, cwd=root)
    assert shown.returncode == 1 and "exit status 3: boom: the reason" in unfold(shown.stdout)


def test_a_job_that_ignores_its_signal_is_ended_at_its_limit(slow: Slow) -> None:
    root = slow.roots["late"]
    pids = slow.places["late"].children
    tracked = wait_over(root)
    job = tracked.jobs["j0001-r1"]
    assert (job.state, job.reason) == (State.TIMED_OUT, "TIMEOUT: TimeLimit"), job
    assert tracked.runs[RUN].state is State.TIMED_OUT and job.reason in tracked.runs[RUN].reason
    run = report(root)[RUN]
    assert run["state"] == "timed out" and "TimeLimit" in run["reason"]
    printed = hpcbench("report", root, cwd=root)
    assert printed.returncode == 1 and "timed out" in unfold(printed.stdout)
    left = retry(root)
    assert left.jobs == [] and "timed out without a checkpoint" in left.left[RUN]
    assert pids  # the namespace of the node hides whether they are gone


def test_a_signal_before_the_limit_stops_a_run_that_retry_continues(slow: Slow) -> None:
    root = slow.roots["heard"]
    tracked = wait_over(root)
    stopped = [tracked.runs[f"r1-{scheme}"].state for scheme in ("baseline", "naive-zfp8", "mzhybrid")]
    assert stopped == [State.COMPLETED, State.STOPPED, State.STOPPED]
    assert tracked.jobs["j0001-r1"].state is State.STOPPED and "hpcbench retry" in tracked.jobs["j0001-r1"].reason
    assert report(root)["r1-naive-zfp8"]["state"] == "stopped"
    done = hpcbench("retry", root.name, cwd=root.parent)
    assert done.returncode == 0 and "1 job again, for 2 runs" in done.stdout
    tracked = wait_over(root)
    assert {status.state for status in tracked.runs.values()} == {State.COMPLETED}
    assert [tracked.runs[f"r1-{scheme}"].attempt for scheme in ("baseline", "naive-zfp8", "mzhybrid")] == [1, 2, 2]
    assert read_json(root / "jobs" / "j0001-r1" / "status.json")["id"] == slow.id("heard")  # type: ignore[index]


def test_a_job_that_may_be_requeued_continues_by_itself(slow: Slow) -> None:
    root = slow.roots["goes-on"]
    tracked = wait_over(root)
    assert {status.state for status in tracked.runs.values()} == {State.COMPLETED}
    assert (tracked.jobs["j0001-r1"].attempt, tracked.runs["r1-naive-zfp8"].attempt) == (2, 2)
    assert [call["run"] for call in slow.places["goes-on"].calls if "run" in call] == [
        *("r1-baseline", "r1-naive-zfp8", "r1-naive-zfp8")
    ]
    first = read_json(root / "jobs" / "j0001-r1" / "attempts" / "1.json")
    assert first is not None and (first["state"], first["exit"], first["id"]) == ("requeued", 75, slow.id("goes-on"))
    assert len(listed(slow.cluster, "goes-on-")) == 1, "a requeued job keeps its id"
    assert slow.cluster.job(slow.id("goes-on"))["Restarts"] == "1"


def test_a_job_is_not_requeued_more_often_than_allowed(slow: Slow) -> None:
    root, id = slow.roots["never-done"], slow.id("never-done")
    for attempt in (1, 2):
        wait_run(root, RUN, State.RUNNING, attempt)
        slow.cluster.run(["scancel", "--batch", "--signal=USR1", id], check=True)
    tracked = wait_over(root)
    assert (tracked.jobs["j0001-r1"].state, tracked.runs[RUN].state) == (State.STOPPED, State.STOPPED)
    assert (tracked.jobs["j0001-r1"].attempt, tracked.runs[RUN].attempt) == (2, 2)
    assert slow.cluster.job(id)["Restarts"] == "1"
