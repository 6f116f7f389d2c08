"""Tests of the Flux back end with the fake Flux, and of the parsers with Flux output."""

import getpass
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import Fake, FakeFlux
from fakes.state import RUNNING

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers import flux_answers
from hpcbench.batch.schedulers.flux import Flux
from hpcbench.batch.schedulers.scheduler import UnclearError, scheduler_class
from hpcbench.batch.sites.site import Site
from hpcbench.contract.state import State
from hpcbench.errors import UserError

SITE = Site.model_validate(
    {
        "site": "pretended",
        "scheduler": {"kind": "flux"},
        "node": {"cores": 40, "gpus": 4},
        "launcher": {"kind": "flux"},
        "checked": "never",
    }
)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.chdir(tmp_path)
    with FakeFlux(minute=1.0, terminate_interval=0.3) as fake:
        monkeypatch.setenv("PATH", fake.environment["PATH"])
        yield fake


@pytest.fixture
def flux(fake: Fake, tmp_path: Path) -> Flux:
    return Flux(tmp_path, SITE)


def batch_job(root: Path, name: str, body: str, head: str = "", **more: object) -> BatchJob:
    """Write a job script, and return its job."""
    script = root / f"{name}.sh"
    script.write_text(f"#!/bin/bash\n#flux: --nodes=1 --job-name={name} {head}\n{body}\n", encoding="utf-8")
    return BatchJob(name, str(script), ["j1"], **more)  # type: ignore[arg-type]


def test_it_is_registered() -> None:
    assert scheduler_class("flux") is Flux


def test_a_job_from_submission_to_its_end(flux: Flux, fake: Fake, tmp_path: Path) -> None:
    receipt = flux.submit(batch_job(tmp_path, "good", "while [ ! -e go ]; do sleep 0.05; done"))
    assert receipt.id.isdigit()
    assert receipt.elements == [receipt.id]
    assert receipt.argv[:2] == ["flux", "batch"]
    fake.wait_for(receipt.id, RUNNING)
    word = flux.poll([receipt.id])[receipt.id]
    assert (word.state, word.exit, word.end, word.hosts) == (State.RUNNING, None, None, "node1")
    (tmp_path / "go").touch()
    fake.wait()
    word = flux.poll([receipt.id, "99"])[receipt.id]
    assert (word.state, word.exit) == (State.COMPLETED, 0)
    assert word.start is not None
    assert word.end is not None
    assert word.end >= word.start


def test_ends_of_all_kinds(flux: Flux, fake: Fake, tmp_path: Path) -> None:
    bad = flux.submit(batch_job(tmp_path, "bad", "exit 3")).id
    late = flux.submit(batch_job(tmp_path, "late", "sleep 60", "-t 30s")).id
    gone = flux.submit(batch_job(tmp_path, "gone", "sleep 60")).id
    fake.wait_for(gone, RUNNING)
    fake.order("host_failure", job=gone)
    never = flux.submit(batch_job(tmp_path, "never", "true", after=[bad])).id
    after = flux.submit(batch_job(tmp_path, "after", "true", after=[bad], after_any=True)).id
    fake.wait()
    statuses = flux.poll([bad, late, gone, never, after])
    assert (statuses[bad].state, statuses[bad].exit) == (State.FAILED, 3)
    assert statuses[late].state is State.TIMED_OUT
    assert statuses[late].reason == "timeout: resource allocation expired"
    assert statuses[gone].state is State.NODE_FAILED
    assert (statuses[never].state, statuses[never].exit, statuses[never].start) == (State.CANCELLED, None, None)
    assert statuses[never].reason.startswith("dependency: ")
    assert statuses[after].state is State.COMPLETED


def test_poll_is_one_call_and_leaves_out_unknown_ids(flux: Flux, fake: Fake, tmp_path: Path) -> None:
    ids = [flux.submit(batch_job(tmp_path, f"n{k}", "true")).id for k in range(3)]
    fake.wait()
    before = len(fake.calls)
    assert list(flux.poll([*ids, "12345"])) == ids
    assert len(fake.calls) == before + 1
    assert flux.poll(["12345"]) == {}
    assert flux.poll([]) == {}
    assert len(fake.calls) == before + 2
    fake.order("fail", program="flux", text="flux-jobs: ERROR: Connection refused", status=1)
    with pytest.raises(UserError, match="Connection refused"):
        flux.poll(ids)


def test_a_job_is_found_by_its_complete_name(flux: Flux, fake: Fake, tmp_path: Path) -> None:
    assert flux.find("one", 1) is None
    receipt = flux.submit(batch_job(tmp_path, "one", "true"))
    flux.submit(batch_job(tmp_path, "one-more", "true"))
    fake.wait()
    listed = flux.find("one", 1)
    assert listed is not None
    assert (listed.id, listed.elements) == (receipt.id, receipt.elements)
    second = flux.submit(batch_job(tmp_path, "one", "sleep 60"))
    fake.wait_for(second.id, RUNNING)
    listed = flux.find("one", 1)
    assert listed is not None and listed.id == second.id  # a running job comes before an ended one


def test_cancel(flux: Flux, fake: Fake, tmp_path: Path) -> None:
    done = flux.submit(batch_job(tmp_path, "done", "true")).id
    fake.wait()
    runs = flux.submit(batch_job(tmp_path, "runs", "sleep 60")).id
    waits = flux.submit(batch_job(tmp_path, "waits", "sleep 60", "-N 4")).id
    fake.wait_for(runs, RUNNING)
    answers = flux.cancel([done, runs, waits, "12345"])
    assert answers == {done: "already over", runs: "ended", waits: "ended", "12345": "unknown to Flux"}
    fake.wait()
    assert {flux.poll([id])[id].state for id in (runs, waits)} == {State.CANCELLED}


def test_a_refusal_by_flux_is_reported(flux: Flux, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unsatisfiable request") as caught:
        flux.submit(batch_job(tmp_path, "large", "true", "-N 9"))
    assert not isinstance(caught.value, UnclearError)
    with pytest.raises(UserError, match="Flux has no job arrays"):
        flux.submit(BatchJob("x", str(tmp_path / "x"), ["a", "b"], array=True))


NO_BANK = "flux-batch: ERROR: [Errno 22] cannot find user/bank or user/default bank entry for uid: 5"


def test_a_refused_bank_is_answered_with_those_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "flux"
    program.parent.mkdir()
    answer = (
        f'if [ "$1" = batch ]; then echo "{NO_BANK}" >&2; exit 1; fi\n[ "$*" = "$WANTED" ] && printf "chem\\nphys\\n"'
    )
    program.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("WANTED", f"account view-user {getpass.getuser()} --list-banks")
    with pytest.raises(UserError, match=r"Flux refused the job: set account: in the study .* prints: chem phys$"):
        Flux(tmp_path, SITE).submit(batch_job(tmp_path, "charged", "true"))


def test_unclear_answers(flux: Flux, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.order("empty", program="flux", times=1)
    with pytest.raises(UnclearError, match="no job ID"):
        flux.submit(batch_job(tmp_path, "quiet", "true"))
    assert flux.find("quiet", 1) is not None  # the job was accepted
    fake.order("hang", program="flux", seconds=30, times=1)
    with monkeypatch.context() as patch:
        patch.setattr("hpcbench.batch.schedulers.client.PATIENCE", 1.0)
        with pytest.raises(UnclearError, match="did not answer within 1 s"):
            flux.submit(batch_job(tmp_path, "slow", "true"))
    assert flux.find("slow", 1) is not None
    fake.order("mute", program="flux", text="flux-batch: ERROR: [Errno 110] Connection timed out", times=1)
    with pytest.raises(UnclearError, match="Connection timed out"):
        flux.submit(batch_job(tmp_path, "cut", "true"))
    assert flux.find("cut", 1) is not None
    fake.order("banner", program="flux", lines=["Welcome, 17 users", "flux is great"], times=1)
    receipt = flux.submit(batch_job(tmp_path, "noisy", "true"))
    assert receipt.id == fake.jobs[-1].key


def test_variables_of_an_outer_job_are_dropped(
    flux: Flux, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x1")
    monkeypatch.setenv("PMIX_RANK", "3")
    monkeypatch.setenv("FLUX_URI", "local:///run/flux/local")
    flux.submit(batch_job(tmp_path, "clean", "true"))
    environment = fake.calls[-1].environment
    assert "SLURM_CPU_BIND" not in environment
    assert "PMIX_RANK" not in environment
    assert environment["FLUX_URI"] == "local:///run/flux/local"
    assert environment["FLUX_F58_FORCE_ASCII"] == "1"


def test_check(flux: Flux, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Flux.check(SITE)
    fake.order("fail", program="flux", text="flux: Unable to connect to Flux", status=1, times=1)
    with pytest.raises(UserError, match="Unable to connect to Flux: check that a Flux instance runs here"):
        Flux.check(SITE)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="flux: not on PATH"):
        Flux.check(SITE)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("DEPEND", State.PENDING),
        ("PRIORITY", State.PENDING),
        ("SCHED", State.PENDING),
        ("RUN", State.RUNNING),
        ("CLEANUP", State.RUNNING),
        ("COMPLETED", State.COMPLETED),
        ("FAILED", State.FAILED),
        ("CANCELED", State.CANCELLED),
        ("TIMEOUT", State.TIMED_OUT),
        ("timeout", State.TIMED_OUT),
        ("HIBERNATED", State.UNKNOWN),
    ],
)
def test_states(status: str, state: State) -> None:
    assert flux_answers.read_statuses(f"77|{status}|||||||")["77"].state is state


@pytest.mark.parametrize(("code", "exit"), [("0", 0), ("3", 3), ("-15", 143), ("-128", None), ("", None)])
def test_exit_status(code: str, exit: int | None) -> None:
    assert flux_answers.read_statuses(f"77|FAILED|{code}|||||")["77"].exit == exit


def test_lines_without_a_job_are_skipped() -> None:
    text = "Welcome | to | the | machine\n\nf1|x\n77|FAILED|1|1700000000.5|1700000060|n[1-2]|exec|a | b\n"
    statuses = flux_answers.read_statuses(text)
    assert list(statuses) == ["77"]
    word = statuses["77"]
    assert (word.start, word.end) == ("2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z")
    assert (word.hosts, word.reason) == ("n[1-2]", "exec: a | b")


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("ƒuZZybuNNy", "6731191091817518"),
        ("fuZZybuNNy", "6731191091817518"),
        ("fjpXCZedGfVQ", str(2**64 - 1)),
        ("fjpXCZedGfVR", None),
        ("42", "42"),
        ("flux", None),
        ("4 2", None),
    ],
)
def test_ids(text: str, id: str | None) -> None:
    # The letter l, as in flux, is not a digit of base 58.
    assert flux_answers.decimal(text) == id
