"""Tests of hpcbench's LSF back end with each variant of the fake: submissions are accepted, and output is parsed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Fake
from fakes.state import RUNNING

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.lsf import Lsf
from hpcbench.batch.schedulers.scheduler import UnclearError
from hpcbench.batch.sites.site import Site
from hpcbench.contract.state import State
from hpcbench.errors import UserError

SITE = {
    "site": "pretended",
    "scheduler": {"kind": "lsf"},
    "node": {"cores": 40, "gpus": 4},
    "launcher": {"kind": "jsrun"},
    "checked": "never",
}
FLAVOURS = ("csm", "lsf", "old", "lsf-like")


@pytest.fixture
def start(
    fake_of: Callable[..., Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[Fake, Lsf]]:
    """Start a variant, and return the back end that finds it on PATH."""

    def make(flavour: str) -> tuple[Fake, Lsf]:
        fake = fake_of("lsf", flavour=flavour)
        monkeypatch.setenv("PATH", fake.environment["PATH"])
        site = Site.model_validate(SITE)
        Lsf.check(site)
        return fake, Lsf(tmp_path, site)

    return make


def batch_job(name: str, body: str, count: int = 1, limit: str = "2:00", **more: object) -> BatchJob:
    """Return the script of a job or an array."""
    script = Path.cwd() / f"{name}.sh"
    script.write_text(f"#!/bin/bash\n#BSUB -W {limit}\n{body}\n", encoding="utf-8")
    return BatchJob(name, str(script), [f"j{k}" for k in range(count)], array=count > 1, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_states_and_exit_codes(start: Callable[[str], tuple[Fake, Lsf]], flavour: str) -> None:
    fake, lsf = start(flavour)
    good = lsf.submit(batch_job("good", "true")).id
    array = lsf.submit(batch_job("array", "exit $((LSB_JOBINDEX - 1))", 3))
    late = lsf.submit(batch_job("late", "sleep 60", limit="0:01")).id
    after = lsf.submit(batch_job("after", "true", after=[array.id], after_any=True)).id
    fake.wait()
    answers = lsf.poll([good, *array.elements, late, after, "999"])
    assert answers[good].state is State.COMPLETED
    assert [answers[element].state for element in array.elements] == [State.COMPLETED, State.FAILED, State.FAILED]
    assert [answers[element].exit for element in array.elements[1:]] == [1, 2]
    assert (answers[late].state, answers[late].exit) == (State.TIMED_OUT, 130 if flavour == "lsf-like" else 140)
    assert ("LSF's run limit" if flavour == "lsf-like" else "TERM_RUNLIMIT") in answers[late].reason
    assert answers[after].state is State.COMPLETED
    assert "999" not in answers
    job = lsf.find("array", 3)
    assert job is not None
    assert list(job.elements) == list(array.elements)
    assert lsf.find("nothing", 1) is None


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_cancel_and_history(start: Callable[[str], tuple[Fake, Lsf]], flavour: str) -> None:
    fake, lsf = start(flavour)
    over = lsf.submit(batch_job("over", "exit 4")).id
    fake.wait()
    runs = lsf.submit(batch_job("runs", "sleep 60")).id
    fake.wait_for(runs, RUNNING)
    assert lsf.cancel([over, runs]) == {over: "already over", runs: "ended"}
    assert lsf.poll([runs])[runs].state is State.CANCELLED
    fake.order("clean", job="*")
    answers = lsf.poll([over, runs])
    assert (answers[over].state, answers[over].exit) == (State.FAILED, 4)
    assert answers[runs].state is State.CANCELLED
    fake.order("lose", job="*")
    assert lsf.poll([over, runs]) == {}


def test_faults(start: Callable[[str], tuple[Fake, Lsf]]) -> None:
    fake, lsf = start("csm")
    ids = [lsf.submit(batch_job(name, "exit 0")).id for name in ("one", "two")]
    fake.wait()
    fake.order("state", job=ids[0], word="UNKWN", times=1)
    assert lsf.poll(ids)[ids[0]].state is State.UNKNOWN
    fake.order("banner", program="bjobs", lines=["*** JOBID of the month: 7 ***", ""], times=1)
    fake.order("status", program="bjobs", status=255, times=1)
    assert {word.state for word in lsf.poll(ids).values()} == {State.COMPLETED}
    fake.order("fail", program="bjobs", text="LSF is down. Please wait ...", status=255)
    with pytest.raises(UserError, match="LSF is down"):
        lsf.poll(ids)


def test_unclear_submission_is_found_by_name(
    start: Callable[[str], tuple[Fake, Lsf]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, lsf = start("csm")
    monkeypatch.setattr("hpcbench.batch.schedulers.client.PATIENCE", 2.0)
    fake.order("hang", program="bsub", seconds=30, times=1)
    with pytest.raises(UnclearError):
        lsf.submit(batch_job("slow", "true"))
    job = lsf.find("slow", 1)
    assert job is not None
    assert job.id == fake.jobs[0].key


def test_refusals_reach_the_user(start: Callable[[str], tuple[Fake, Lsf]]) -> None:
    _, lsf = start("csm")
    wrong = batch_job("wrong", "true")
    Path(wrong.script).write_text("#!/bin/bash\n#BSUB -W 01:00:00\ntrue\n", encoding="utf-8")
    with pytest.raises(UserError, match="Bad RUNLIMIT specification") as caught:
        lsf.submit(wrong)
    assert not isinstance(caught.value, UnclearError)
