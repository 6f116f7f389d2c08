"""Tests of states that LSF reports for a job and later forgets. `status` reports them. Missing output is never treated
as success."""

from collections.abc import Callable

import pytest
from fake_sites import Place, read_report, states, wait_for, wait_until_over
from fakes.state import RUNNING

from hpcbench.batch.cancel import cancel
from hpcbench.batch.retry import retry
from hpcbench.batch.show_jobs import show_status
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State

pytestmark = pytest.mark.long  # `make test` covers the jobs whose states LSF reports clearly

Make = Callable[..., Place]
Capture = pytest.CaptureFixture[str]
JOB, RUN = "j0001-r1", "r1-baseline"


@pytest.fixture
def held(place: Make) -> Place:
    """A site whose job runs until the test releases it."""
    here = place(dispatch_delay=0.3)
    here.acts({RUN: "hold"})
    here.submit()
    here.began()
    wait_for(lambda: here.fake.jobs[0].state == RUNNING)
    return here


def asked(here: Place) -> list[str]:
    """Return the programs that hpcbench called to poll jobs, without `bjobs -l`, which the job itself calls."""
    calls = [call for call in here.fake.calls if call.program in ("bjobs", "bhist")]
    return [call.program for call in calls if call.program == "bhist" or "-l" not in call.argv]


@pytest.mark.parametrize(("how", "word"), [("bstop", "USUSP"), ("suspend", "SSUSP")])
def test_suspended_is_neither_over_nor_failed(held: Place, capsys: Capture, how: str, word: str) -> None:
    root = held.root
    if how == "bstop":
        held.fake.run("bstop", "1")
    else:
        held.fake.order("suspend", job="1")
    tracked = track(root)
    assert (tracked.jobs[JOB].state, tracked.runs[RUN].state) == (State.SUSPENDED, State.SUSPENDED)
    assert (tracked.over, tracked.failed) == (False, False)
    assert tracked.jobs[JOB].reason.startswith(word)
    capsys.readouterr()
    show_status(tracked)
    assert capsys.readouterr().out.count(" suspended  since ") == 2
    status, shown = read_report(capsys, root)
    assert status == 0
    assert "suspended" in shown
    assert retry(root, all=True).left == {RUN: "its job is suspended"}
    held.go()
    if how == "bstop":
        held.fake.run("bresume", "1")
    else:
        held.fake.order("resume", job="1")
    assert states(wait_until_over(held, root)) == [State.COMPLETED]


def test_a_job_that_is_held_before_it_starts(place: Make) -> None:
    here = place(dispatch_delay=30.0)
    root = here.submit().root
    assert track(root).jobs[JOB].state is State.PENDING
    here.fake.run("bstop", "1")
    tracked = track(root)
    assert tracked.jobs[JOB].state is State.PENDING
    assert tracked.jobs[JOB].reason.startswith("PSUSP: held while pending")
    assert cancel(root) == "1 job: ended"
    assert states(track(root)) == [State.CANCELLED]


def test_a_host_that_does_not_answer_for_a_while(held: Place) -> None:
    root = held.root
    assert states(track(root)) == [State.RUNNING]
    held.fake.order("state", job="1", word="UNKWN")
    assert (track(root).jobs[JOB].state, states(track(root))) == (State.RUNNING, [State.RUNNING])
    held.fake.withdraw("state")
    held.go()
    assert states(wait_until_over(held, root)) == [State.COMPLETED]


def test_a_zombie_is_lost_and_its_reason_names_the_remedy(held: Place) -> None:
    root = held.root
    held.fake.order("state", job="1", word="ZOMBI")
    tracked = track(root)
    assert (tracked.jobs[JOB].state, tracked.failed) == (State.LOST, True)
    assert "bkill -r" in tracked.jobs[JOB].reason
    held.fake.withdraw("state")


def test_a_job_that_is_pending_again_after_it_ran(held: Place) -> None:
    root = held.root
    assert states(track(root)) == [State.RUNNING]
    held.fake.order("state", job="1", word="PEND")  # until it is dispatched again
    held.fake.order("preempt", job="1")
    tracked = track(root)
    assert (tracked.jobs[JOB].state, tracked.jobs[JOB].attempt) == (State.PENDING, 2)
    assert tracked.jobs[JOB].reason.startswith("put back into its queue after attempt 1")
    assert (tracked.runs[RUN].state, tracked.runs[RUN].reason) == (State.PENDING, "continues in attempt 2")
    held.fake.withdraw("state")
    held.go()
    tracked = wait_until_over(held, root)
    assert states(tracked) == [State.COMPLETED]
    assert tracked.runs[RUN].attempt == 2


@pytest.mark.parametrize("fault", ["clean", "lose", "fail"])
def test_the_status_file_gives_the_state_of_a_job_that_left_bjobs(held: Place, fault: str) -> None:
    root = held.root
    held.go()
    held.fake.wait()
    if fault == "fail":
        for program in ("bjobs", "bhist"):
            held.fake.order("fail", program=program, text="LSF is down. Please wait ...", status=255)
    else:
        held.fake.order(fault, job="*")
    tracked = track(root)
    assert (tracked.jobs[JOB].state, states(tracked)) == (State.COMPLETED, [State.COMPLETED])
    assert tracked.over


def test_bhist_gives_the_state_of_a_job_that_left_bjobs_without_a_status_file(held: Place, capsys: Capture) -> None:
    root = held.root
    held.fake.order("out_of_memory", job="1")
    held.fake.wait()
    held.fake.order("clean", job="*")
    tracked = track(root)
    assert states(tracked) == [State.OUT_OF_MEMORY]
    assert asked(held) == ["bjobs", "bhist"]
    assert "out of memory" in read_report(capsys, root)[1]


def test_a_job_that_lsf_has_forgotten_is_lost_after_a_while_and_never_completed(
    held: Place, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    root = held.root
    assert states(track(root)) == [State.RUNNING]
    held.fake.order("external_kill", job="1")
    held.fake.wait()
    held.fake.order("lose", job="*")
    assert states(track(root)) == [State.RUNNING]  # answers may be late
    monkeypatch.setattr("hpcbench.contract.job_state.GRACE", 0.0)
    tracked = track(root)
    assert (tracked.jobs[JOB].state, states(tracked)) == (State.LOST, [State.LOST])
    status, shown = read_report(capsys, root)
    assert status == 1
    assert "lost" in shown
    held.acts({})
    assert retry(root).runs == [RUN]


def test_an_lsf_that_does_not_answer_leaves_the_state_unknown(held: Place) -> None:
    root = held.root
    assert states(track(root)) == [State.RUNNING]
    held.fake.order("fail", program="bjobs", text="Cannot connect to LSF. Please wait ...", status=255)
    tracked = track(root)
    assert tracked.jobs[JOB].state is State.UNKNOWN
    assert "Cannot connect to LSF" in tracked.jobs[JOB].reason
    assert "last seen running" in tracked.jobs[JOB].reason
    held.fake.withdraw("fail")
    assert states(track(root)) == [State.RUNNING]
