"""Tests of limits, kills and failed hosts with the fake LSF: reactions of jobs, and states in `status` and `report`."""

from collections.abc import Callable

import pytest
from fake_sites import Place, read_report, states, wait_for, wait_until_over

from hpcbench.batch.retry import retry
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.files import read_json

pytestmark = pytest.mark.long  # `make test` covers the limits of Slurm and of this machine

Make = Callable[..., Place]
Capture = pytest.CaptureFixture[str]
JOB = "j0001-r1"
SOON = {"walltime": "30m", "stop_ahead": "26m"}
"""Limits for a scheduler whose minutes last one second. The warning is sent after four minutes."""


@pytest.mark.parametrize(
    ("name", "site"), [("lassen", {}), ("summit", {}), ("lsf-cluster", {"scheduler__allocation": "slots"})]
)
def test_a_warned_job_is_requeued_and_its_run_continues(
    place: Make, capsys: Capture, mpich: dict[str, object], name: str, site: dict[str, object]
) -> None:
    here = place(name, site={**site, **(mpich if name == "lsf-cluster" else {})}, minute=1.0)
    here.acts({"r1-baseline": "stop"})
    here.write_study(**SOON, requeue=1)
    root = here.submit().root
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.COMPLETED]
    assert (tracked.jobs[JOB].state, tracked.jobs[JOB].attempt) == (State.COMPLETED, 2)
    assert [job.starts for job in here.fake.jobs] == [2]
    first = read_json(root / "jobs" / JOB / "attempts" / "1.json")
    assert first is not None
    assert (first["state"], first["exit"]) == ("requeued", 75)
    log = root / "runs" / "r1-baseline"
    assert '"stopped"' in (log / "log.1.txt").read_text(encoding="utf-8")
    assert '"completed"' in (log / "log.txt").read_text(encoding="utf-8")
    assert read_report(capsys, root)[0] == 0


def test_one_element_of_an_array_is_requeued_alone(place: Make) -> None:
    here = place(site={"scheduler__max_array": 2}, minute=1.0)
    here.acts({"r2-baseline": "stop"})
    here.write_study(**SOON, requeue=1, repeats=2, pairing="none")
    root = here.submit().root
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.COMPLETED] * 2
    assert [(job.key, job.starts) for job in here.fake.jobs] == [("1[1]", 1), ("1[2]", 2)]
    assert [status.attempt for status in tracked.jobs.values()] == [1, 2]
    assert (tracked.runs["r2-baseline"].attempt, tracked.runs["r1-baseline"].attempt) == (2, 1)


def test_a_job_that_may_not_be_requeued_is_stopped_and_completed_by_retry(place: Make, capsys: Capture) -> None:
    here = place(minute=1.0)
    here.acts({"r1-baseline": "stop"})
    here.write_study(**SOON)
    root = here.submit().root
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.STOPPED]
    assert "hpcbench retry" in tracked.jobs[JOB].reason
    status, shown = read_report(capsys, root)
    assert status == 1
    assert "r1-baseline: stopped" in shown
    assert retry(root).runs == ["r1-baseline"]
    assert states(wait_until_over(here, root)) == [State.COMPLETED]
    assert [job.name.rpartition(".")[2] for job in here.fake.jobs][1:] == ["2"]  # each attempt has a different name
    assert read_report(capsys, root)[0] == 0


@pytest.mark.parametrize("act", ["hold", "deaf"])
def test_the_run_limit(place: Make, capsys: Capture, act: str) -> None:
    here = place(minute=1.0)
    here.acts({"r1-baseline": act})
    here.write_study(walltime="8m", stop_ahead="2m")  # the run begins before the warning, also on a slow machine
    root = here.submit().root
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.TIMED_OUT]
    assert tracked.jobs[JOB].reason.startswith("TERM_RUNLIMIT")
    assert tracked.jobs[JOB].exit == 140
    status, shown = read_report(capsys, root)
    assert status == 1
    assert "timed out (TERM_RUNLIMIT" in shown
    assert "timed out without a checkpoint" in retry(root).left["r1-baseline"]


@pytest.mark.parametrize(
    ("fault", "state", "term", "mends"),
    [
        ("out_of_memory", State.OUT_OF_MEMORY, "TERM_MEMLIMIT", False),
        ("host_failure", State.NODE_FAILED, "TERM_ZOMBIE", True),
        ("external_kill", State.FAILED, "TERM_EXTERNAL", True),
        ("bkill", State.CANCELLED, "TERM_OWNER", False),
    ],
)
def test_what_is_done_to_a_job(place: Make, capsys: Capture, fault: str, state: State, term: str, mends: bool) -> None:
    here = place()
    here.acts({"r1-baseline": "hold"})
    root = here.submit().root
    here.began()
    if fault == "bkill":
        here.fake.run("bkill", "1")
    else:
        here.fake.order(fault, job="1")
    tracked = wait_until_over(here, root)
    assert tracked.jobs[JOB].state is state
    assert tracked.jobs[JOB].reason.startswith(term)
    run = tracked.runs["r1-baseline"].state
    assert run is (State.LOST if state is State.FAILED else state)
    status, shown = read_report(capsys, root)
    assert status == 1
    assert f"r1-baseline: {run.value}" in shown
    assert (retry(root).runs == ["r1-baseline"]) is mends
    if mends:
        here.acts({})
        assert states(wait_until_over(here, root)) == [State.COMPLETED]


def test_a_job_of_a_failed_host_runs_again_if_that_is_allowed(place: Make) -> None:
    here = place(dispatch_delay=1.0)
    here.acts({"r1-baseline": "hold"})
    here.write_study(requeue=1)
    root = here.submit().root
    here.began()
    wait_for(lambda: states(track(root)) == [State.RUNNING])
    here.fake.order("host_failure", job="1")
    wait_for(lambda: track(root).jobs[JOB].state is State.PENDING or here.fake.jobs[0].starts == 2)
    here.go()
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.COMPLETED]
    assert tracked.jobs[JOB].attempt == 2


def test_a_variant_of_lsf_that_ends_jobs_at_their_limit_without_a_reason(place: Make, mpich: dict[str, object]) -> None:
    refused = {"scheduler__refuses": ["-wa", "-wt", "-rn", "-cwd", "-ti"]}
    here = place("lsf-cluster", site={**mpich, **refused}, flavour="lsf-like", minute=1.0)
    here.acts({"r1-baseline": "hold"})
    here.write_study(walltime="4m", stop_ahead="1m")
    root = here.submit().root
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.TIMED_OUT]
    assert tracked.jobs[JOB].reason == "LSF's run limit"  # from its history, because bkill also sends signal 2
