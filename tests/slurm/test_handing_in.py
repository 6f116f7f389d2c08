"""Tests of job arrays, dependent studies and cancellation, with other jobs in the queue of a real Slurm."""

from pathlib import Path

import pytest
from batch_fakes import wait_for
from on_slurm import PATIENCE, OnSlurm, hpcbench, job, listed, report, unfold, wait_over, wait_run, wait_state
from slurm_on_one_machine import Cluster

from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.files import read_json

RUN = "r1-baseline"
SCHEMES = {"matrix": {"scheme": ["baseline", "naive-zfp8"]}}


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path) -> OnSlurm:
    return OnSlurm(tmp_path / "place", cluster)


def test_unpaired_runs_are_arrays_whose_elements_are_told_apart(place: OnSlurm, cluster: Cluster) -> None:
    place.write_site(scheduler={"max_array": 3})
    place.write_study(study="unpaired", pairing="none", repeats=4, **SCHEMES)
    place.acts({"naive-zfp8": "fail"})
    root = place.submit()
    ledger = Ledger(root)
    assert [(len(job.jobs), job.array) for job in ledger.submitted] == [(3, True), (3, True), (2, True)]
    ids = [f"{job.id}_{k + 1}" for job in ledger.submitted for k in range(len(job.jobs))]
    tracked = wait_over(root)
    assert list(tracked.ids.values()) == ids
    assert listed(cluster, tracked.submission.name) == sorted(ids)
    runs = {run.id: run for run in tracked.submission.runs}
    for run, status in tracked.runs.items():
        ends = State.COMPLETED if runs[run].scheme == "baseline" else State.FAILED
        name = runs[run].job
        assert (status.state, tracked.jobs[name].state) == (ends, ends), "each has an end of its own"
        mark = read_json(root / "jobs" / name / "status.json")
        assert mark is not None and mark["id"] == tracked.ids[name], "the script has the same id as the ledger"
    place.acts({})
    done = hpcbench("retry", "--all", root, cwd=root)
    assert done.returncode == 0 and "4 jobs again, for 4 runs" in done.stdout
    tracked = wait_over(root)
    assert {status.state for status in tracked.runs.values()} == {State.COMPLETED}
    assert {run["state"] for run in report(root).values()} == {"completed"}


def test_cancel_ends_what_runs_and_what_waits_and_nothing_else(place: OnSlurm, cluster: Cluster) -> None:
    place.write_site(scheduler={"max_array": 2, "directives": {"--exclusive": None, "--nodelist": "n1"}})
    place.write_study(study="cancelled", pairing="none", repeats=4, matrix={"scheme": ["baseline"]})
    place.acts({"baseline": "sleep"})
    others = ["sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 1000"]
    runs = cluster.run([*others, "--nodelist=n2", "--job-name=cancelled"], check=True).stdout.strip()
    waits = cluster.run([*others, "--begin=now+1hour", "--job-name=cancelled"], check=True).stdout.strip()
    root = place.submit()
    wait_for(lambda: place.children, PATIENCE)
    cluster.wait_job(runs, "RUNNING")
    states = [status.state for status in track(root).jobs.values()]
    assert sorted(state.value for state in states) == ["pending", "pending", "pending", "running"]
    done = hpcbench("cancel", root, cwd=root)
    assert done.returncode == 0 and "4 jobs: ended" in done.stdout, done.stdout + done.stderr
    tracked = track(root)
    assert {status.state for status in (*tracked.jobs.values(), *tracked.runs.values())} == {State.CANCELLED}
    assert [cluster.job(job)["JobState"] for job in (runs, waits)] == ["RUNNING", "PENDING"]
    assert {run["state"] for run in report(root).values()} == {"cancelled"}
    assert "no job is waiting or running" in hpcbench("cancel", root, cwd=root).stdout
    cluster.run(["scancel", runs, waits], check=True)


def test_a_study_begins_after_another_completed_and_not_if_it_did_not(tmp_path: Path, cluster: Cluster) -> None:
    def chain(name: str, **options: object) -> tuple[OnSlurm, Path]:
        place = OnSlurm(tmp_path / name, cluster)
        place.write_study(study=name, matrix={"scheme": ["baseline"]})
        return place, place.submit(**options)

    firsts = {}
    for name in ("good", "bad"):
        firsts[name] = OnSlurm(tmp_path / name, cluster)
        firsts[name].write_study(study=name, matrix={"scheme": ["baseline"]}, repeats=2, pairing="none")
        firsts[name].write_site(scheduler={"max_array": 2})
        firsts[name].acts({"baseline": "wait"})
    good, bad = (firsts[name].submit() for name in ("good", "bad"))
    _, met = chain("met", after=str(good))
    _, unmet = chain("unmet", after=str(bad))
    _, anyhow = chain("anyhow", after=str(bad), after_any=True)
    for root in (met, unmet, anyhow):
        wait_for(lambda root=root: job(root).reason == "Dependency", PATIENCE)
    for root in (good, bad):
        wait_run(root, RUN)
    assert hpcbench("cancel", bad, cwd=bad).returncode == 0
    status = wait_state(unmet, State.CANCELLED)
    assert status.reason == "CANCELLED: DependencyNeverSatisfied"
    assert track(unmet).runs[RUN].state is State.CANCELLED
    shown = hpcbench("status", unmet, cwd=unmet)
    assert shown.returncode == 1 and "DependencyNeverSatisfied" in unfold(shown.stdout)
    assert report(unmet)[RUN]["state"] == "cancelled"
    assert wait_over(anyhow).runs[RUN].state is State.COMPLETED
    assert job(met).state is State.PENDING, "what it waits for has not ended"
    (firsts["good"].directory / "go").touch()
    assert wait_over(met).runs[RUN].state is State.COMPLETED
    assert {status.state for status in track(good).runs.values()} == {State.COMPLETED}
    refused = hpcbench(
        "submit", "study.yaml", "--site", "site.yaml", "--after", bad, "--again", cwd=firsts["good"].directory
    )
    assert refused.returncode == 2 and "cancelled" in refused.stderr and "--after-any" in refused.stderr
