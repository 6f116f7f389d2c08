"""Tests of a shipped site's script with the fake Flux, from submission to report."""

from collections.abc import Callable

import pytest
from fake_sites import Place, launch_lines, read_report, states, wait_for, wait_until_over
from fakes.hosts import why_not

from hpcbench.batch.after import find_after
from hpcbench.batch.cancel import cancel
from hpcbench.batch.retry import retry
from hpcbench.batch.schedulers.flux_answers import decimal
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.files import read_json

Make = Callable[..., Place]
Capture = pytest.CaptureFixture[str]


@pytest.mark.long
def test_a_study_trains(place: Make, capsys: Capture, need: Callable[[str | None], None]) -> None:
    need(why_not())
    here = place(real=True)
    here.write_study(ranks_per_node=2, layout={"tp": 1, "pp": 2})
    root = here.submit().root
    assert launch_lines(root) == ["flux run -N2 -n4 -c21 -o cpu-affinity=per-task -o mpibind=off"]
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.COMPLETED], (root / "runs/r1-baseline/err.txt").read_text(encoding="utf-8")
    mark = read_json(root / "jobs" / "j0001-r1" / "status.json")
    assert mark is not None
    assert mark["hosts"] == ["node1", "node2"]
    assert mark["id"].startswith("f")
    assert decimal(mark["id"]) == tracked.ids["j0001-r1"] == str(here.fake.jobs[0].id)
    status, shown = read_report(capsys, root)
    assert status == 0
    assert "4 ranks" in shown


def test_a_running_job_is_cancelled_and_another_is_not(place: Make, capsys: Capture) -> None:
    here = place()
    here.acts({"r1-baseline": "hold"})
    first = here.submit().root
    here.write_study(study="other")
    other = here.submit().root
    here.began()
    wait_for(lambda: {states(track(root))[0] for root in (first, other)} == {State.RUNNING})
    assert cancel(first) == "1 job: ended"
    wait_for(lambda: track(first).over)
    assert states(track(first)) == [State.CANCELLED]
    assert states(track(other)) == [State.RUNNING]
    status, shown = read_report(capsys, first)
    assert status == 1
    assert "cancelled" in shown
    here.go()
    assert states(wait_until_over(here, other)) == [State.COMPLETED]


def test_a_job_near_its_limit_stops_and_retry_continues_it(place: Make, capsys: Capture) -> None:
    here = place()
    here.acts({"r1-baseline": "stop"})
    here.write_study(walltime="60s", stop_ahead="45s", requeue=1)
    root = here.submit().root
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.STOPPED]
    assert "hpcbench retry" in tracked.jobs["j0001-r1"].reason
    assert "Flux cannot requeue jobs" in (root / "jobs" / "j0001-r1" / "out.log").read_text(encoding="utf-8")
    assert "stopped" in read_report(capsys, root)[1]
    assert retry(root).runs == ["r1-baseline"]
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.COMPLETED]
    assert (tracked.jobs["j0001-r1"].attempt, len(here.fake.jobs)) == (2, 2)


def test_a_job_that_ignores_its_signal_is_timed_out(place: Make, capsys: Capture) -> None:
    here = place(minute=1.0)
    here.acts({"r1-baseline": "deaf"})
    here.write_study(walltime="6m", stop_ahead="2m")  # the run begins before the warning, also on a slow machine
    root = here.submit().root
    tracked = wait_until_over(here, root)
    assert tracked.jobs["j0001-r1"].state is State.TIMED_OUT
    assert states(tracked) == [State.TIMED_OUT]
    status, shown = read_report(capsys, root)
    assert status == 1
    assert "timed out" in shown
    assert "timed out without a checkpoint" in retry(root).left["r1-baseline"]


@pytest.mark.parametrize("any_end", [False, True])
def test_a_study_waits_for_another_that_fails(place: Make, capsys: Capture, any_end: bool) -> None:
    here = place()
    here.acts({"r1-baseline": "hold"})
    first = here.submit().root
    here.began()
    here.write_study(study="second")
    second = here.submit(after="fake", after_any=any_end).root
    assert track(second).jobs["j0001-r1"].state is State.PENDING
    before = find_after("fake", site="tuolumne", results=first.parents[1], where="x", any_end=True)
    assert before.ids == [str(here.fake.jobs[0].id)]
    cancel(first)
    here.acts({})
    tracked = wait_until_over(here, second)
    if any_end:
        assert states(tracked) == [State.COMPLETED]
        return
    assert states(tracked) == [State.CANCELLED]
    assert "dependency" in tracked.jobs["j0001-r1"].reason
    status, shown = read_report(capsys, second)
    assert status == 1
    assert "was cancelled (dependency: dependency-afterok failed" in shown


def test_a_job_whose_node_fails(place: Make, capsys: Capture) -> None:
    here = place()
    here.acts({"r1-baseline": "hold"})
    root = here.submit().root
    here.began()
    here.fake.order("host_failure", job="*")
    tracked = wait_until_over(here, root)
    assert states(tracked) == [State.NODE_FAILED]
    assert "node-failure" in tracked.jobs["j0001-r1"].reason
    assert "node failure" in read_report(capsys, root)[1]
    here.acts({})
    assert retry(root).runs == ["r1-baseline"]
    assert states(wait_until_over(here, root)) == [State.COMPLETED]


@pytest.fixture
def killed(place: Make, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A submission that was killed after Flux had accepted its job. The job is pending, because no queue runs it."""
    here = place()
    here.acts({"r1-baseline": "hold"})
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "close", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            here.submit()
    return here


def test_submit_again_finds_the_job_of_a_killed_submission(killed: Place) -> None:
    again = killed.submit()
    [job] = killed.fake.jobs
    [submitted] = Ledger(again.root).submitted
    assert (submitted.id, submitted.name) == (str(job.id), job.name)
    killed.go()
    assert states(wait_until_over(killed, again.root)) == [State.COMPLETED]


def test_cancel_finds_the_job_of_a_killed_submission(killed: Place) -> None:
    assert cancel(killed.root) == "1 job: ended"
    [job] = killed.fake.wait()
    assert job.why == "owner"


def test_every_copy_of_a_job_is_cancelled(place: Make) -> None:
    here = place(nodes=2)
    here.acts({"r1-baseline": "hold"})
    root = here.submit().root
    [call] = [call for call in here.fake.calls if call.argv[:1] == ["batch"]]
    here.began()
    here.fake.run("flux", *call.argv)  # like a wrapper that sends each call twice, and prints one answer
    assert cancel(root) == "2 jobs: ended"
    here.fake.wait()
    assert [job.why for job in here.fake.jobs] == ["owner", "owner"]


def test_a_copy_that_begins_after_the_end_does_not_run_the_job_again(place: Make) -> None:
    here = place()
    here.acts({"r1-baseline": "fail"})
    root = here.submit().root
    wait_until_over(here, root)
    [call] = [call for call in here.fake.calls if call.argv[:1] == ["batch"]]
    here.fake.run("flux", *call.argv)
    here.fake.wait()
    assert [job.exit for job in here.fake.jobs] == [1, 73]
