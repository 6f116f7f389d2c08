"""Tests of nodes that crash or are taken down while a job runs, and of preempted jobs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_fakes import wait_for
from on_slurm import PATIENCE, OnSlurm, hpcbench, job, listed, report, unfold, wait_over, wait_run
from slurm_on_one_machine import Cluster

from hpcbench.batch.tracking.track import Tracked, track
from hpcbench.contract.state import State
from hpcbench.files import read_json

FIRST, SECOND = "r1-baseline", "r1-naive-zfp8"
ALONE = {"scheduler": {"directives": {"--exclusive": None}}}


class Jobs:
    """Studies of one job with two runs on an exclusive node."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._folder = folder
        self._cluster = cluster

    def of(self, name: str, act: str, **study: Any) -> OnSlurm:
        place = OnSlurm(self._folder / name, self._cluster)
        place.write_site(**ALONE)
        place.write_study(**{"study": name, "matrix": {"scheme": ["baseline", "naive-zfp8"]}, **study})
        place.acts({"naive-zfp8": act})
        return place


@pytest.fixture
def jobs(cluster: Cluster, tmp_path: Path) -> Jobs:
    return Jobs(tmp_path, cluster)


@pytest.fixture
def fragile(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whose nodes are restored after the test."""
    yield cluster
    for node in cluster.nodes:
        if cluster.node_state(node).startswith("DOWN"):
            cluster.node_up(node)


def launched(place: OnSlurm) -> list[str]:
    return [call["run"] for call in place.calls if "run" in call]


def host(root: Path) -> str:
    mark = read_json(root / "jobs" / "j0001-r1" / "status.json")
    assert mark is not None
    return str(mark["host"])


def ended(root: Path) -> Tracked:
    wait_for(lambda: not job(root).state.alive, PATIENCE)
    return track(root)


def test_a_node_failure_is_reported_and_fixed_by_retry(fragile: Cluster, jobs: Jobs) -> None:
    places = [jobs.of(name, "sleep") for name in ("crash", "down")]
    roots = [place.submit() for place in places]
    assert all(place.children for place in places)
    crashed, down = nodes = [host(root) for root in roots]
    fragile.node_kill(crashed)
    fragile.node_down(down, "disk")
    for place, root, node in zip(places, roots, nodes, strict=True):
        tracked = ended(root)
        job = tracked.jobs["j0001-r1"]
        assert (job.state, job.reason) == (State.NODE_FAILED, "NODE_FAIL: NodeDown"), (node, job)
        assert tracked.runs[FIRST].state is State.COMPLETED
        assert tracked.runs[SECOND].state is State.NODE_FAILED and job.reason in tracked.runs[SECOND].reason
        assert {name: run["state"] for name, run in report(root).items()} == {
            FIRST: "completed",
            SECOND: "node failure",
        }
        shown = hpcbench("status", root, cwd=root)
        assert shown.returncode == 1 and "node failure" in unfold(shown.stdout) and "NODE_FAIL" in unfold(shown.stdout)
        place.acts({})
    before = [track(root).ids for root in roots]
    for root in roots:
        done = hpcbench("retry", root, cwd=root)
        assert done.returncode == 0 and "1 job again, for 1 run" in done.stdout, done.stderr
    for place, root, ids in zip(places, roots, before, strict=True):
        tracked = wait_over(root)
        assert [tracked.runs[run].state for run in (FIRST, SECOND)] == [State.COMPLETED] * 2
        assert [tracked.runs[run].attempt for run in (FIRST, SECOND)] == [1, 2], "a completed run is not repeated"
        assert tracked.ids != ids and host(root) not in nodes
        assert launched(place) == [FIRST, SECOND, SECOND]
        assert {run["state"] for run in report(root).values()} == {"completed"}
        pairings = [run.pairing for run in tracked.submission.runs]
        assert pairings[0] == pairings[1] and {run["pairing"] for run in report(root).values()} == {pairings[0]}


def test_a_preempted_job_continues_only_if_it_may_be_requeued(cluster: Cluster, jobs: Jobs) -> None:
    goes, stays = jobs.of("goes-back", "sleep", requeue=1), jobs.of("stays-out", "sleep")
    hears = jobs.of("hears", "stop", requeue=1, queue="gentle")
    back, out, heard = goes.submit(), stays.submit(), hears.submit()
    assert goes.children and stays.children
    wait_run(heard, SECOND)
    argv = ["sbatch", "--parsable", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null"]
    urgent = cluster.run([*argv, "--wrap=sleep 1000"], check=True).stdout.strip()
    cluster.wait_job(urgent, "RUNNING")
    tracked = ended(out)
    assert (tracked.jobs["j0001-r1"].state, tracked.runs[SECOND].state) == (State.PREEMPTED, State.PREEMPTED)
    assert tracked.runs[FIRST].state is State.COMPLETED
    assert report(out)[SECOND]["state"] == "preempted"
    tracked = track(back)
    assert (tracked.jobs["j0001-r1"].state, tracked.runs[SECOND].state) == (State.PENDING, State.PENDING)
    assert "preempted" in tracked.jobs["j0001-r1"].reason or "put back" in tracked.jobs["j0001-r1"].reason
    tracked = track(heard)
    assert (tracked.jobs["j0001-r1"].state, tracked.runs[SECOND].state) == (State.PENDING, State.PENDING)
    assert "put back into its queue after attempt 1" in tracked.jobs["j0001-r1"].reason
    goes.acts({})
    cluster.run(["scancel", urgent], check=True)
    tracked = wait_over(back)
    assert {status.state for status in tracked.runs.values()} == {State.COMPLETED}
    assert (tracked.runs[FIRST].attempt, tracked.runs[SECOND].attempt) == (1, 2)
    assert len(listed(cluster, "goes-back-")) == 1
    tracked = wait_over(heard)
    assert {status.state for status in tracked.runs.values()} == {State.COMPLETED}
    assert '"stopped"' in (heard / "runs" / SECOND / "log.1.txt").read_text(encoding="utf-8"), "with a checkpoint"
    stays.acts({})
    assert hpcbench("retry", out, cwd=out).returncode == 0
    assert {status.state for status in wait_over(out).runs.values()} == {State.COMPLETED}
