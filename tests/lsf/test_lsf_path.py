"""Tests of shipped sites' scripts with the fake LSF: arrays, cancellation, dependent studies and LSF variants."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sites import Place, launch_lines, read_report, states, wait_for, wait_until_over
from fakes.state import EXITED, RUNNING

from hpcbench.batch.cancel import cancel
from hpcbench.batch.retry import retry
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.contract.state import State
from hpcbench.errors import UserError

Make = Callable[..., Place]
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("name", "site", "line"),
    [
        ("lassen", {}, "lrun -N2 -T1 -M -gpu"),
        (
            "lassen",
            {"launcher__kind": "jsrun"},
            "jsrun -n 2 -r 1 -a 1 -c 20 -g 1 -b packed:20 -d packed --smpiargs=-gpu",
        ),
        ("summit", {}, "jsrun -n 2 -r 1 -a 1 -c 21 -g 1 -b packed:21 -d packed --smpiargs=-gpu"),
    ],
)
def test_the_scripts_of_shipped_sites(place: Make, name: str, site: dict[str, str], line: str) -> None:
    here = place(name, site=site)
    root = here.submit().root
    assert launch_lines(root) == [line]
    assert states(wait_until_over(here, root)) == [State.COMPLETED]
    assert sorted(here.ranks) == [("1", "node1", 0), ("1", "node2", 1)]
    [job] = here.fake.jobs
    assert (job.name, job.account, job.hosts) == (Ledger(root).submitted[0].name.replace("-", "_"), "bank", 2)
    [call] = [call for call in here.fake.calls if call.program == "bsub"]
    assert (call.stdin is None) is (name == "summit")  # that site runs `bsub script`, this one `bsub < script`


MPIRUN_RSH = """#!/bin/bash
while [ "$1" != -hostfile ]; do shift; done
cp -- "$2" "$(dirname "$0")/hosts.txt"
rank=0 hosts=$2
shift 2
while read -r host; do
  HPCBENCH_FAKE_HOST=$host PMI_RANK=$rank env "$@" < /dev/null || exit
  rank=$((rank + 1))
done < "$hosts"
"""


def test_mpirun_rsh_starts_no_rank_on_the_launch_host(place: Make, tmp_path: Path) -> None:
    program = tmp_path / "mpirun_rsh"
    program.write_text(MPIRUN_RSH)
    program.chmod(0o755)
    here = place("lassen", site={"launcher": {"kind": "mpirun_rsh", "program": str(program)}})
    here.write_study(ranks_per_node=2)
    root = here.submit().root
    assert states(wait_until_over(here, root)) == [State.COMPLETED]
    assert (tmp_path / "hosts.txt").read_text().split() == ["node1", "node1", "node2", "node2"]
    assert sorted(here.ranks) == [("1", f"node{1 + rank // 2}", rank) for rank in range(4)]


def test_each_element_of_an_array_is_tracked_separately(place: Make, capsys: Capture) -> None:
    here = place(site={"scheduler__max_array": 3})
    here.acts({"r2-baseline": "fail", "r4-baseline": "hold"})
    here.write_study(repeats=5, pairing="none")
    root = here.submit().root
    here.began("r4-baseline")
    wait_for(lambda: states(track(root)).count(State.COMPLETED) == 3)
    tracked = track(root)
    done, failed = State.COMPLETED, State.FAILED
    assert states(tracked) == [done, failed, done, State.RUNNING, done]
    assert list(tracked.ids.values()) == ["1[1]", "1[2]", "1[3]", "2[1]", "2[2]"]
    assert sorted(job.name for job in here.fake.jobs) == sorted(
        handed.name.replace("-", "_") for handed in Ledger(root).submitted for _ in handed.jobs
    )
    assert cancel(root) == "1 job: ended"
    assert states(wait_until_over(here, root)) == [done, failed, done, State.CANCELLED, done]
    status, shown = read_report(capsys, root)
    assert status == 1
    assert "r2-baseline: failed: RuntimeError: boom" in shown
    assert "r4-baseline: cancelled" in shown


def test_cancel_ends_only_our_jobs_and_uses_force_if_needed(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.batch.schedulers.lsf.TERMINATE_WAIT", 1.0)
    here = place()
    here.acts({"r1-baseline": "hold"})
    root = here.submit().root
    here.began()
    here.fake.run("bsub", "-nnodes", "1", "-G", "bank", stdin=b"#!/bin/sh\nsleep 600\n")
    here.fake.wait_for("2", RUNNING)
    here.fake.order("zombie", job="1")
    here.fake.order("state", job="1", word="ZOMBI")
    assert track(root).jobs["j0001-r1"].state is State.LOST
    here.fake.withdraw("state")
    (root / "scheduler.json").unlink()
    assert cancel(root) == "1 job: ended"
    assert [call.argv for call in here.fake.calls if call.program == "bkill"] == [["1"], ["-r", "1"]]
    assert [job.state for job in here.fake.jobs] == [EXITED, RUNNING]
    assert states(track(root)) == [State.CANCELLED]
    assert cancel(root) == "no job is waiting or running"


@pytest.mark.parametrize(("any_end", "end"), [(False, "go"), (False, "cancel"), (True, "cancel")])
def test_a_study_waits_for_another(place: Make, any_end: bool, end: str) -> None:
    here = place()
    here.acts({"r1-baseline": "hold"})
    first = here.submit().root
    here.began()
    here.write_study(study="second")
    second = here.submit(after="fake", after_any=any_end).root
    assert here.fake.jobs[1].depends == ("ended(1)" if any_end else "done(1)")
    wait_for(lambda: track(second).jobs["j0001-r1"].reason == "Job dependency condition not satisfied;")
    assert track(second).jobs["j0001-r1"].state is State.PENDING
    here.acts({})
    if end == "go":
        here.go()
    else:
        cancel(first)
    if any_end or end == "go":
        assert states(wait_until_over(here, second)) == [State.COMPLETED]
        return
    wait_for(lambda: states(track(second)) == [State.CANCELLED])  # by -ti; without it the job would wait for ever
    assert "TERM_ORPHAN_SYSTEM" in track(second).jobs["j0001-r1"].reason


@pytest.mark.parametrize("end", ["go", "cancel"])
def test_a_study_waits_for_many_jobs_through_relay_jobs(place: Make, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr("hpcbench.batch.schedulers.lsf.Lsf.most_after", 2)
    here = place(nodes=8)
    here.acts({f"r{k}-baseline": "hold" for k in (1, 2, 3)})
    here.write_study(repeats=3, pairing="none")
    here.submit()
    for run in ("r1-baseline", "r2-baseline", "r3-baseline"):
        here.began(run)
    here.acts({})
    here.write_study(study="second")
    second = here.submit(after="fake").root
    depends = {job.name.rpartition("_")[2]: job.depends for job in here.fake.jobs[3:]}
    assert depends == {"w01": "done(1) && done(2)", "w02": "done(3)", "r1": "done(4) && done(5)"}
    if end == "go":
        here.go()
        assert states(wait_until_over(here, second)) == [State.COMPLETED]
        assert [job.hosts for job in here.fake.jobs[3:]] == [1, 1, 2]
    else:
        assert cancel(second) == "3 jobs: ended"
        assert [job.state for job in here.fake.jobs] == [RUNNING] * 3 + [EXITED] * 3


LIKE: dict[str, object] = {"scheduler__refuses": ["-wa", "-wt", "-rn", "-cwd", "-ti"]}
"""Options that OpenLava and LSF before version 10 lack."""


def test_a_job_that_lsf_keeps_after_its_dependency_failed_is_reported(place: Make, mpich: dict[str, object]) -> None:
    here = place("lsf-cluster", site={**mpich, **LIKE}, flavour="lsf-like")
    here.acts({"r1-baseline": "hold"})
    first = here.submit().root
    here.began()
    here.write_study(study="second")
    second = here.submit(after="fake")
    assert "refuses -ti: if fake fails, the jobs wait until you cancel them" in " ".join(second.notes)
    assert "-ti" not in here.fake.jobs[1].options
    wait_for(lambda: track(second.root).jobs["j0001-r1"].reason == "Job dependency condition not satisfied;")
    cancel(first)
    reason = "Dependency condition invalid or never satisfied; cancel the job with `hpcbench cancel`"
    wait_for(lambda: track(second.root).jobs["j0001-r1"].reason == reason)
    tracked = track(second.root)
    assert (tracked.jobs["j0001-r1"].state, tracked.runs["r1-baseline"].reason) == (State.PENDING, reason)
    assert cancel(second.root) == "1 job: ended"
    assert states(track(second.root)) == [State.CANCELLED]
    [left] = retry(second.root).left.values()
    assert left.startswith("cancelled (job j0001-r1 was cancelled (Signal <KILL> requested by user))")


@pytest.mark.parametrize(
    ("array", "held"),
    [
        (False, False),
        (True, True),
        *(pytest.param(*options, marks=pytest.mark.long) for options in ((False, True), (True, False))),
    ],
)
def test_a_job_that_was_cancelled_while_it_waited_is_not_retried(
    place: Make, mpich: dict[str, object], held: bool, array: bool
) -> None:
    site = {**mpich, **LIKE, "scheduler__max_array": 2 if array else None}
    here = place("lsf-cluster", site=site, flavour="lsf-like", nodes=2)
    here.fake.run("bsub", "-n", "64", "-R", "span[ptile=32]", "-P", "other", "-x", stdin=b"#!/bin/sh\nsleep 600\n")
    here.fake.wait_for("1", RUNNING)
    here.write_study(repeats=2, pairing="none")
    root = here.submit().root
    if held:
        for job in here.fake.jobs[1:]:
            here.fake.run("bstop", job.key)
    assert states(track(root)) == [State.PENDING] * 2
    assert cancel(root) == "2 jobs: ended"
    assert states(track(root)) == [State.CANCELLED] * 2
    retried = retry(root)
    assert (retried.jobs, set(retried.left)) == ([], {"r1-baseline", "r2-baseline"})
    (root / "scheduler.json").unlink()
    for path in (root / "handed").glob("*.json"):  # the history contains the cancellation as well
        path.write_text(re.sub(r'"cancelled": "[^"]*"', '"cancelled": null', path.read_text(encoding="utf-8")))
    assert states(track(root)) == [State.CANCELLED] * 2


def test_the_script_replaces_options_that_lsf_refuses(place: Make, mpich: dict[str, object]) -> None:
    here = place("lsf-cluster", site=mpich, flavour="lsf-like")
    with pytest.raises(UserError, match=r"illegal option -- .*: .*add it to scheduler\.refuses of the site file"):
        here.submit()
    site = json.loads(here.site.read_text(encoding="utf-8"))
    site["scheduler"]["refuses"] = LIKE["scheduler__refuses"]
    here.site.write_text(json.dumps(site), encoding="utf-8")
    here.acts({"r1-baseline": "stop"})
    here.write_study(walltime="1m", stop_ahead="50s")
    submission = here.submit()
    assert states(wait_until_over(here, submission.root)) == [State.STOPPED]  # the script measures the time itself
    lost = "-rn is left out because lsf-cluster refuses it: LSF may run a job"
    assert any(note.startswith(lost) for note in submission.notes)
    assert not any("-wa" in note or "-cwd" in note for note in submission.notes)
    head = [
        line for line in (submission.root / "jobs" / "j0001-r1" / "job.sh").read_text().splitlines() if "#BSUB" in line
    ]
    assert {line.split()[1] for line in head} == {"-J", "-n", "-R", "-gpu", "-W", "-P", "-q", "-o"}


def test_a_variant_of_lsf_that_prints_only_tables(place: Make, capsys: Capture, mpich: dict[str, object]) -> None:
    here = place("lsf-cluster", site={**mpich, **LIKE}, flavour="lsf-like")
    here.acts({"r2-baseline": "fail", "r3-baseline": "hold"})
    here.write_study(repeats=3, pairing="none")
    root = here.submit().root
    here.began("r3-baseline")
    wait_for(lambda: states(track(root)) == [State.COMPLETED, State.FAILED, State.RUNNING])
    cancel(root)
    assert states(wait_until_over(here, root)) == [State.COMPLETED, State.FAILED, State.CANCELLED]
    assert "RuntimeError: boom" in read_report(capsys, root)[1]


@pytest.mark.parametrize(
    ("name", "fake", "says"),
    [
        ("lassen", {"flavour": "lsf-like"}, "illegal option -- nnodes: this LSF refuses the option: add it to"),
        ("lassen", {"root_refused": True}, "User permission denied. Job not submitted.: you are not allowed"),
        ("lassen", {"queues": {"batch": {}}}, "pbatch: No such queue. Job not submitted.: set queue: in the study"),
        (
            "lassen",
            {"account_option": "-P"},
            "wants an account: option -P. Job not submitted.: set account: in the study",
        ),
        (
            "lsf-cluster",
            {"cores": 8},
            "Too many processors requested. Job not submitted.: use fewer nodes in the study, or correct node:",
        ),
        ("lsf-cluster", {"flavour": "csm"}, "30: The '-n <slots>' flag is no longer supported."),
    ],
)
def test_a_refused_submission_leaves_no_files(place: Make, name: str, fake: dict[str, object], says: str) -> None:
    if "root_refused" in fake and os.geteuid():
        fake = {"root_refused": False, "account_option": "-P"}
        says = "wants an account"
    here = place(name, **fake)
    with pytest.raises(UserError) as caught:
        here.submit()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (here.directory / "results").exists()
    assert here.fake.jobs == []


@pytest.mark.parametrize(("flavour", "word"), [("lsf", "EXCLUSIVE"), ("lsf-like", "exclusive")])
def test_a_queue_that_refuses_exclusive_jobs(place: Make, mpich: dict[str, object], flavour: str, word: str) -> None:
    site = {**mpich, **(LIKE if flavour == "lsf-like" else {}), "scheduler__directives": {"-x": None}}
    here = place("lsf-cluster", site=site, flavour=flavour, queues={"normal": {"exclusive": False}})
    with pytest.raises(UserError, match=rf"Queue does not accept {word} jobs.*: remove -x from scheduler\.directives"):
        here.submit()


def test_a_site_reserves_memory(place: Make, mpich: dict[str, object]) -> None:
    here = place("lsf-cluster", site={**mpich, "scheduler__directives": {"-R": "rusage[mem=8GB]"}})
    root = here.submit().root
    assert states(wait_until_over(here, root)) == [State.COMPLETED]
    assert len({host for _, host, _ in here.ranks}) == 2


def test_an_old_bjobs_is_asked_for_the_fields_that_it_has(place: Make, mpich: dict[str, object]) -> None:
    here = place("lsf-cluster", site={**mpich, "scheduler__max_array": 2}, flavour="old")
    here.acts({"r1-baseline": "hold"})
    here.write_study(repeats=2, pairing="none")
    root = here.submit().root
    here.began()
    wait_for(lambda: states(track(root)) == [State.RUNNING, State.COMPLETED])  # from the index in the name
    here.go()
    assert states(wait_until_over(here, root)) == [State.COMPLETED] * 2
    asked = [call.argv[call.argv.index("-o") + 1] for call in here.fake.calls if "-o" in call.argv]
    assert "jobindex" in asked[0] and "jobindex" not in asked[-1] and "start_time" in asked[-1]


@pytest.mark.parametrize("how", ["mute", "status", "hang", "banner"])
def test_a_job_whose_answer_was_lost_is_found_and_not_submitted_twice(
    place: Make, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("hpcbench.batch.submit_jobs._LOOKS", (0.1, 0.5, 2.0, 8.0))
    here = place()
    orders: dict[str, dict[str, object]] = {
        "mute": {"text": "mbatchd: Assertion failed in a place that no documentation names"},
        "status": {"status": 255},
        "hang": {"seconds": 60},
        "banner": {"lines": ["Job <7> is the lottery's number of today", "*" * 80]},
    }
    if how == "hang":
        monkeypatch.setattr("hpcbench.batch.schedulers.client.PATIENCE", 4.0)
    here.fake.order(how, program="bsub", times=1, **orders[how])
    root = here.submit().root
    monkeypatch.setattr("hpcbench.batch.schedulers.client.PATIENCE", 90.0)
    assert Ledger(root).submitted[0].id == "1"
    assert states(wait_until_over(here, root)) == [State.COMPLETED]
    assert len(here.fake.jobs) == 1
    assert len([call for call in here.fake.calls if call.program == "bsub"]) == 1


def test_a_busy_lsf_is_asked_again(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.batch.schedulers.submit_command.WAITS", (0.1, 0.1, 0.1))
    here = place()
    here.fake.order("fail", program="bsub", text="LSF is down. Please wait ...", status=255, times=2)
    assert states(wait_until_over(here, here.submit().root)) == [State.COMPLETED]
    here.fake.order("fail", program="bsub", text="LSF is down. Please wait ...", status=255)
    with pytest.raises(UserError, match="LSF is down"):
        here.submit(again=True)
    submissions = [path.name for path in (here.directory / "results" / "fake").iterdir() if path.name.isdigit()]
    assert submissions == ["001"]


def test_a_killed_submission_is_continued(place: Make) -> None:
    here = place()
    here.write_study(repeats=2, pairing="none")
    here.fake.order("hang", program="bsub", seconds=600, times=1)
    command = [sys.executable, "-m", "hpcbench", "submit", str(here.study), "--site", str(here.site)]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    wait_for(lambda: here.fake.jobs)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    for pid in _calls_of(here, "bsub"):
        os.kill(pid, signal.SIGKILL)
    root = here.directory / "results" / "fake" / "001"
    assert [handed.id for handed in Ledger(root).submitted] == [None]
    again = here.submit()
    assert again.root == root
    assert "submitted 1 more job." in again.notes[-1]
    assert states(wait_until_over(here, root)) == [State.COMPLETED] * 2
    assert [job.key for job in here.fake.jobs] == ["1", "2"]


def _calls_of(here: Place, program: str) -> list[int]:
    """Return the process ids of a running program of the fake."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = path.read_text(encoding="utf-8", errors="replace").split("\0")
            if f"{here.fake.config.directory}/fake.py" in arguments and program in arguments:
                processes.append(int(path.parent.name))
    return processes
