"""Tests of jobs that Slurm without accounting has forgotten.

The end of a job is read from its status file. Without a status file, no job is considered successful.
"""

from pathlib import Path

import pytest
from batch_fakes import wait_for
from on_slurm import PATIENCE, OnSlurm, hpcbench, job, report, wait_run
from slurm_on_one_machine import Cluster

from hpcbench.batch.retry import retry
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State

RUN = "r1-baseline"
DIES = """\
if [ "$HPCBENCH_ATTEMPT" = 1 ]; then
  (until [ -e runs/r1-baseline/status.json ]; do sleep 0.1; done; kill -KILL $$) &
fi
"""
"""Code that kills the job script of a first attempt during its run, so that the end of the run is not recorded."""


class Forgotten:
    """Submissions that were never polled before Slurm forgot their jobs."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.places = {}
        self.roots = {}
        acts = {"well": "ok", "failed": "fail", "cancelled": "sleep", "late": "sleep", "killed": "sleep"}
        for name, act in acts.items():
            place = self.places[name] = OnSlurm(folder / name, cluster)
            place.write_site(setup=DIES.splitlines() if name == "killed" else [])
            place.write_study(study=name, matrix={"scheme": ["baseline"]})
            place.acts({"baseline": act})
            self.roots[name] = place.submit()
        for name in ("cancelled", "late"):
            assert self.places[name].children
        cluster.end_time(self.id("late"), 1)
        assert "1 job: ended" in hpcbench("cancel", self.roots["cancelled"], cwd=folder).stdout
        for name in acts:
            wait_for(lambda name=name: not cluster.job(self.id(name)), PATIENCE)

    def id(self, name: str) -> str:
        (status,) = track(self.roots[name], ask=False).ids.values()
        return status


@pytest.fixture(scope="module")
def forgotten(forgetful: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Forgotten:
    return Forgotten(tmp_path_factory.mktemp("forgotten"), forgetful)


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("well", State.COMPLETED, ""),
        ("failed", State.FAILED, "boom: the reason"),
        ("cancelled", State.CANCELLED, ""),
        ("late", State.FAILED, "15 (TERM)"),  # Slurm has forgotten the reason
    ],
)
def test_status_files_show_how_a_forgotten_job_ended(
    forgotten: Forgotten, name: str, state: State, reason: str
) -> None:
    root = forgotten.roots[name]
    tracked = track(root)
    assert (tracked.jobs["j0001-r1"].state, tracked.runs[RUN].state) == (state, state)
    assert reason in tracked.runs[RUN].reason
    assert report(root)[RUN]["state"] == state.value


def test_a_forgotten_job_without_an_end_is_lost_after_a_while_and_never_completed(
    forgotten: Forgotten, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = forgotten.roots["killed"]
    assert (job(root).state, track(root).runs[RUN].state) == (State.RUNNING, State.RUNNING), "it may just be unlisted"
    monkeypatch.setattr("hpcbench.contract.job_state.GRACE", 0.0)
    tracked = track(root)
    assert (tracked.jobs["j0001-r1"].state, tracked.runs[RUN].state) == (State.LOST, State.LOST)
    assert "its status file records no end" in tracked.jobs["j0001-r1"].reason
    forgotten.places["killed"].acts({})
    assert retry(root).runs == [RUN]
    monkeypatch.undo()
    wait_run(root, RUN, State.COMPLETED, 2)
