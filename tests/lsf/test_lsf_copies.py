"""Tests of a hanging daemon. bsub sends a job repeatedly, LSF accepts all copies later, and only one copy runs."""

import re
from collections.abc import Callable

import pytest
from fake_sites import Place, read_report, states, wait_for, wait_until_over
from fakes.state import DONE, EXITED, RUNNING, WAITING

from hpcbench.batch.cancel import cancel
from hpcbench.batch.retry import retry
from hpcbench.batch.schedulers.scheduler import Receipt
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.errors import UserError

pytestmark = pytest.mark.long  # `make test` covers jobs that were submitted once

Make = Callable[..., Place]
JOB = "j0001-r1"
LEFT = 73
"""Exit status of a script that ends because another copy runs the job."""


def send_again(here: Place, copies: int) -> None:
    """Submit further copies of the job, as a persistent bsub would do."""
    [call] = [call for call in here.fake.calls if call.program == "bsub"]
    for _ in range(copies):
        here.fake.run("bsub", *call.argv, stdin=call.stdin)


def test_a_bsub_that_keeps_trying_is_killed_and_its_job_looked_up(place: Make) -> None:
    here = place()
    here.fake.order("resend", program="bsub", copies=5, seconds=5.0)
    root = here.submit().root
    assert len(here.fake.jobs) == 1
    [handed] = Ledger(root).submitted
    assert (handed.id, handed.argv) == ("1", [])
    assert states(wait_until_over(here, root)) == [State.COMPLETED]


def test_if_lsf_does_not_answer_the_message_mentions_that_the_job_may_exist(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.batch.submit_jobs._LOOKS", (0.0, 0.0))
    here = place()
    here.fake.order("resend", program="bsub", copies=5, seconds=5.0)
    silent = "batch system daemon not responding ... still trying"
    here.fake.order("noise", program="bjobs", lines=[silent])
    message = r"bsub: .* still trying: the scheduler may have accepted the job"
    silent = r"and the queue cannot be searched \(bjobs: .*trying\)"
    with pytest.raises(UserError, match=rf"{message}, {silent}: run the same .* \(recorded in handed/0001\.json\)"):
        here.submit()
    here.fake.withdraw("noise")
    here.fake.wait()
    again = here.submit()
    assert len(here.fake.jobs) == 1
    assert again.notes[-1] == (
        "already submitted and over; found 1 job in the queue for which the scheduler's response had been lost: "
        "nothing was submitted (use --again to submit the study again)"
    )


def test_one_copy_of_a_job_runs_and_the_others_end(place: Make, capsys: pytest.CaptureFixture[str]) -> None:
    here = place()
    here.acts({"r1-baseline": "hold"})
    root = here.submit().root
    send_again(here, 4)  # four nodes are enough for two jobs at a time
    here.began()
    here.fake.wait_for("5", EXITED)
    here.go()
    assert states(wait_until_over(here, root)) == [State.COMPLETED]
    assert sorted(here.ranks) == [("1", "node1", 0), ("1", "node2", 1)]
    assert [(job.state, job.exit) for job in here.fake.jobs] == [(DONE, 0), *[(EXITED, LEFT)] * 4]
    log = (root / "jobs" / JOB / "out.log").read_text(encoding="utf-8")
    message = f"job {JOB}: was claimed more than once, and another script holds the claim: see jobs/{JOB}/claims"
    assert log.count(message) == 4
    assert read_report(capsys, root)[0] == 0


def test_the_running_copy_is_polled_even_if_it_is_not_the_first(place: Make) -> None:
    here = place()
    here.acts({"r1-baseline": "hold"})
    root = here.submit().root
    here.began()
    ledger = Ledger(root)
    ledger.close(ledger.submitted[0], Receipt("7", ["7"]))
    assert track(root).ids == {JOB: "1"}
    here.go()
    assert states(wait_until_over(here, root)) == [State.COMPLETED]


def test_a_cancel_ends_copies_that_wait(place: Make) -> None:
    here = place(nodes=2)
    here.acts({"r1-baseline": "hold"})
    here.fake.order("mute", program="bsub", text="Communication time out")
    root = here.submit().root
    here.began()
    here.fake.withdraw("mute")
    send_again(here, 2)
    assert [job.state for job in here.fake.jobs] == [RUNNING, WAITING, WAITING]
    assert cancel(root) == "3 jobs: ended"
    assert states(wait_until_over(here, root)) == [State.CANCELLED]
    assert [job.starts for job in here.fake.jobs] == [1, 0, 0]


def test_a_copy_that_comes_after_the_end_does_not_run_it_again(place: Make) -> None:
    here = place()
    here.acts({"r1-baseline": "fail"})
    root = here.submit().root
    wait_until_over(here, root)
    send_again(here, 1)
    here.fake.wait()
    assert [job.exit for job in here.fake.jobs] == [1, LEFT]
    assert states(track(root)) == [State.FAILED]
    here.acts({})
    assert retry(root, all=True).runs == ["r1-baseline"]
    assert states(wait_until_over(here, root)) == [State.COMPLETED]


def test_a_job_that_was_killed_without_a_message_is_followed(place: Make) -> None:
    here = place()
    here.acts({"r1-baseline": "hold"})
    root = here.submit().root
    here.began()
    here.fake.order("external_kill", job="1")
    tracked = wait_until_over(here, root)
    assert not (root / "jobs" / JOB / "claims" / "1.end").exists()
    assert not tracked.runs["r1-baseline"].state.alive
    here.go()
    assert retry(root, all=True).runs == ["r1-baseline"]
    assert states(wait_until_over(here, root)) == [State.COMPLETED]
    claims = sorted(path.name for path in (root / "jobs" / JOB / "claims").iterdir())
    assert claims == ["1", "1.end", "2", "2.end"]


def test_names_in_messages_are_those_of_the_queue(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.batch.submit_jobs._LOOKS", (0.0,))
    here = place()
    here.fake.order("fail", program="bsub", text="Request timed out", status=255)
    with pytest.raises(UserError, match=r"the queue has no fake_[0-9a-f]{6}_j0001_r1 so far"):
        here.submit()
    root = here.root
    assert re.fullmatch(r"fake_[0-9a-f]{6}_j0001_r1", Ledger(root).submitted[0].name)
    wait_for(lambda: states(track(root)) == [State.UNKNOWN])
