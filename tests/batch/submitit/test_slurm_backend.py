"""Tests of the Slurm back end, with programs that print recorded output, mostly of Slurm 22.05."""

import datetime
import os
import re
from pathlib import Path

import pytest
from programs import Programs

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.files import now, write_json
from hpcbench.batch.schedulers.scheduler import UnclearError, scheduler_class
from hpcbench.batch.schedulers.slurm import Slurm
from hpcbench.batch.schedulers.slurm_dialect import DIALECT
from hpcbench.batch.schedulers.submit_command import submit_script
from hpcbench.batch.sites.load_site import load_site
from hpcbench.contract.state import State
from hpcbench.errors import UserError

SITE, _ = load_site("longhorn")
TAKEN = "Submitted batch job 123456789\n"
ROW = "|0|0|2026-11-21T15:53:32|2026-11-21T16:53:32|n1|None\n"


def slurm(root: Path) -> Slurm:
    back_end = scheduler_class("slurm")(root, SITE)
    assert isinstance(back_end, Slurm)
    return back_end


def batch_job(root: Path, **changes: object) -> BatchJob:
    script = root / "job.sh"
    script.write_text("#!/bin/bash\n", encoding="utf-8")
    return BatchJob(**{"script": str(script), "name": "s-1.j1", "jobs": ["j1"], **changes})  # type: ignore[arg-type]


def test_submit(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPU_BIND", "mask_cpu:0xF")
    monkeypatch.setenv("LSB_JOBID", "7")
    monkeypatch.setenv("PMIX_RANK", "0")
    monkeypatch.setenv("SLURM_CONF", "/opt/slurm.conf")
    programs.answer("sbatch", "A banner about job 77\n" + TAKEN, "sbatch: warning: something of job 5\n")
    receipt = slurm(tmp_path).submit(batch_job(tmp_path))
    assert (receipt.id, list(receipt.elements)) == ("123456789", ["123456789"])
    [call] = programs.calls("sbatch")
    assert call["argv"] == ["--job-name=s-1.j1", str(tmp_path / "job.sh")]
    assert not {"SLURM_CPU_BIND", "LSB_JOBID", "PMIX_RANK"} & set(call["env"])
    assert call["env"]["SLURM_CONF"] == "/opt/slurm.conf"
    assert list(receipt.argv) == ["sbatch", *call["argv"]]
    assert "something of job 5" in receipt.output


def test_arrays_and_chains(programs: Programs, tmp_path: Path) -> None:
    programs.answer("sbatch", "Submitted batch job 9 on cluster there\n")
    some = batch_job(tmp_path, jobs=["a", "b", "c"], array=True, after=["7", "8_2"])
    assert slurm(tmp_path).submit(some).elements == ["9_1", "9_2", "9_3"]
    assert slurm(tmp_path).submit(batch_job(tmp_path, array=True)).elements == ["9_1"]
    slurm(tmp_path).submit(batch_job(tmp_path, after=["7"], after_any=True))
    first, second, third = (call["argv"] for call in programs.calls("sbatch"))
    assert first[1:4] == ["--array=1-3", "--dependency=afterok:7:8_2", "--kill-on-invalid-dep=yes"]
    assert second[1] == "--array=1-1"
    assert third[1] == "--dependency=afterany:7"


def test_hostile_folders(programs: Programs, hostile: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    programs.answer("sbatch", TAKEN)
    slurm(hostile).submit(batch_job(hostile))
    [call] = programs.calls("sbatch")
    assert call["argv"][-1] == str(hostile / "job.sh")
    assert call["cwd"] == str(hostile)
    assert not list(tmp_path.rglob("pwned"))


def test_an_id_counts_whatever_the_status(programs: Programs, tmp_path: Path) -> None:
    programs.answer("sbatch", TAKEN, "sbatch: error: cannot update credentials\n", status=1)
    receipt = slurm(tmp_path).submit(batch_job(tmp_path))
    assert receipt.id == "123456789"
    assert "cannot update credentials" in receipt.output
    assert len(programs.calls("sbatch")) == 1


@pytest.mark.parametrize(
    ("out", "err", "status"),
    [
        ("", "", 0),
        ("Thank you for job 17\n", "", 0),
        ("", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", 1),
        ("", "sbatch: error: Zero Bytes were transmitted or received\n", 1),
    ],
)
def test_unclear_answers(programs: Programs, tmp_path: Path, out: str, err: str, status: int) -> None:
    programs.answer("sbatch", out, err, status)
    with pytest.raises(UnclearError):
        slurm(tmp_path).submit(batch_job(tmp_path))
    assert len(programs.calls("sbatch")) == 1


def test_no_answer_is_unclear(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.batch.schedulers.client.PATIENCE", 0.3)
    programs.answer("sbatch", TAKEN, sleep=60)
    with pytest.raises(UnclearError, match="sbatch did not answer within"):
        slurm(tmp_path).submit(batch_job(tmp_path))


FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("err", "remedy"),
    [
        (f"sbatch: error: invalid partition specified: x\n{FAILED}Invalid partition name specified\n", "queue:"),
        (f"{FAILED}Invalid account or account/partition combination specified\n", "account:"),
        (f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)\n", "walltime:"),
        (f"{FAILED}Requested node configuration is not available\n", "site file"),
        (f"{FAILED}Unable to contact slurm controller (connect failure)\n", "later"),
        (f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n", "fewer"),
        (f"{FAILED}A new reason\n", "A new reason"),
        (
            "sbatch: error: Cannot find GPU specification, you may not submit a job not requesting GPUs in a GPU "
            f"partition, partition: batch_gpu\n{FAILED}Unspecified error\n",
            "scheduler.gpu_request",
        ),
        (
            "sbatch: error: *** Error partition 'h200' is not valid for this job\n"
            "sbatch: error: *** Error: CPU job setup is not valid\n",
            "scheduler.gpu_request",
        ),
        (
            f"sbatch: error: Jobs in partition a100 must request at least one GPU.\n{FAILED}Unspecified error\n",
            "gpu_req",
        ),
        (f"sbatch: error: lua: no GPUs were requested\n{FAILED}Unspecified error\n", "scheduler.gpu_request"),
        (f"{FAILED}Invalid Trackable RESource (TRES) specification\n", "scheduler.gpu_request"),
        (f"sbatch: error: specify a GPU type, as in --gres=gpu:a100:1\n{FAILED}Unspecified error\n", "gpu:MODEL:"),
        (f"sbatch: error: invalid partition specified: gpu\n{FAILED}Invalid partition name specified\n", "queue:"),
        (f"{FAILED}User's group not permitted to use this partition\n", "queue:"),
        (
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"
            "sbatch: error: instead of expected UNIX line breaks (\\n).\n",
            "dos2unix",
        ),
        (
            f"sbatch: lua: Submitted job 1 is going to partition gpu\n{FAILED}Node count specification invalid\n",
            "nodes:",
        ),
        (f"sbatch: error: You must specify a project with --account\n{FAILED}Unspecified error\n", "account:"),
        (f"sbatch: error: lua: Please specify a wallclock limit (--time)\n{FAILED}Unspecified error\n", "walltime:"),
        (f"sbatch: error: Memory specification can not be satisfied\n{FAILED}Unspecified error\n", "site file"),
    ],
)
def test_refusals(programs: Programs, tmp_path: Path, err: str, remedy: str) -> None:
    programs.answer("sbatch", "", err, status=1)
    with pytest.raises(UserError) as caught:
        slurm(tmp_path).submit(batch_job(tmp_path))
    assert not isinstance(caught.value, UnclearError)
    errors = [line for line in err.strip().splitlines() if "error" in line]
    assert errors[0] in str(caught.value), "the first error is the cause"
    assert err.strip().splitlines()[-1] in str(caught.value)
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(programs.calls("sbatch")) == 1


def test_a_refused_account_is_answered_with_those_of_the_user(programs: Programs, tmp_path: Path) -> None:
    programs.answer("sbatch", "", f"{FAILED}Invalid account or account/partition combination specified\n", status=1)
    programs.answer("sacctmgr", "chem|||\nphys|||\n")
    with pytest.raises(UserError, match=r"your accounts are chem, phys \(sacctmgr show assoc\)$"):
        slurm(tmp_path).submit(batch_job(tmp_path))


def test_only_a_busy_slurm_is_asked_again(programs: Programs, tmp_path: Path) -> None:
    programs.answer("sbatch", "", f"{FAILED}Resource temporarily unavailable\n", status=1, times=2)
    programs.answer("sbatch", TAKEN)
    assert slurm(tmp_path).submit(batch_job(tmp_path)).id == "123456789"
    assert len(programs.calls("sbatch")) == 3


def test_a_slurm_that_stays_busy(programs: Programs, tmp_path: Path) -> None:
    message = "sbatch: Slurm temporarily unable to accept job, sleeping and retrying"
    programs.answer("sbatch", "", message, status=1)
    with pytest.raises(UserError, match="unable to accept job"):
        slurm(tmp_path).submit(batch_job(tmp_path))
    assert len(programs.calls("sbatch")) == 4


def test_poll_asks_the_queue_once_and_accounting_for_the_rest(programs: Programs, tmp_path: Path) -> None:
    write_json(tmp_path / "submission.json", {"time": now()})
    waiting = "2_3|PENDING|0|0|N/A|N/A||Priority\n"
    programs.answer("squeue", "1|RUNNING" + ROW + waiting + "4|FAILED" + ROW + "99|RUNNING" + ROW)
    times = "2026-11-21T15:51:44|2026-11-21T15:52:56|2026-11-21T15:53:16|20|n2"
    late = f"3|TIMEOUT|0:15|{times}||1M|None\n3.batch|CANCELLED|0:15|{times}||9K|\n"
    programs.answer("sacct", late + f"1|FAILED|1:0|{times}|||\n")
    statuses = slurm(tmp_path).poll(["1", "2_3", "2_4", "3", "4", "5"])
    assert {job: word.state for job, word in statuses.items()} == {
        "1": State.RUNNING,
        "2_3": State.PENDING,
        "3": State.TIMED_OUT,
        "4": State.FAILED,
    }
    assert statuses["3"].accounting["MaxRSS"] == "1M"
    [queue], [past] = programs.calls("squeue"), programs.calls("sacct")
    assert queue["argv"][queue["argv"].index("--jobs") + 1] == "1,2,3,4,5"
    assert past["argv"][past["argv"].index("--jobs") + 1] == "2,3,4,5"
    assert queue["env"]["TZ"] == past["env"]["TZ"] == "UTC"
    assert past["env"]["SLURM_TIME_FORMAT"] == "standard"
    [start] = [word for word in past["argv"] if word.startswith("--starttime=")]
    begin = datetime.datetime.fromisoformat(start.partition("=")[2] + "+00:00")
    age = datetime.datetime.now(datetime.timezone.utc) - begin
    assert datetime.timedelta(hours=24) <= age < datetime.timedelta(hours=25)


def test_accounting_is_not_asked_for_running_jobs(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "1|RUNNING" + ROW)
    assert slurm(tmp_path).poll(["1"])["1"].state is State.RUNNING
    assert not programs.calls("sacct")


def test_an_empty_answer_changes_nothing(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "", "slurm_load_jobs error: Invalid job id specified\n", status=1)
    programs.answer("sacct", "")
    back_end = slurm(tmp_path)
    assert back_end.poll(["1"]) == {}
    assert back_end.poll([]) == {}
    assert len(programs.calls("squeue")) == 1


def test_accounting_that_is_off_is_asked_once(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "3|FAILED|768|1|2026-11-21T15:53:32|2026-11-21T15:53:40|n1|NonZeroExitCode\n")
    programs.answer("sacct", "", "Slurm accounting storage is disabled\n", status=1)
    back_end = slurm(tmp_path)
    for _ in range(2):
        word = back_end.poll(["3", "4"])["3"]
        assert (word.state, word.exit, word.end) == (State.FAILED, 3, "2026-11-21T15:53:40Z")
    assert len(programs.calls("sacct")) == 1


def test_a_database_that_is_away_is_asked_again(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "")
    programs.answer("sacct", "", "sacct: error: Problem talking to the database: Connection refused\n", 1, times=1)
    programs.answer("sacct", "3|COMPLETED|0:0|Unknown|Unknown|Unknown|1|n1|||\n")
    back_end = slurm(tmp_path)
    assert back_end.poll(["3", "4"]) == {}
    assert back_end.poll(["3", "4"])["3"].state is State.COMPLETED


def test_a_field_that_accounting_does_not_know(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "")
    programs.answer(
        "sacct", "", 'sacct: error: Invalid field requested: "ConsumedEnergyRaw"\n', 1, when=("ConsumedEnergyRaw",)
    )
    programs.answer("sacct", "3|COMPLETED|0:0|Unknown|Unknown|Unknown|1|n1||\n")
    back_end = slurm(tmp_path)
    assert back_end.poll(["3"])["3"].state is State.COMPLETED
    back_end.poll(["3"])
    assert len(programs.calls("sacct")) == 3


def test_an_old_squeue_is_asked_in_its_own_way(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "1\n", "squeue: error: Invalid job format specification: exit_code\n", when=("--Format",))
    programs.answer("squeue", "1|RUNNING|n1|None\n")
    back_end = slurm(tmp_path)
    for _ in range(2):
        assert back_end.poll(["1"])["1"].state is State.RUNNING
    assert len(programs.calls("squeue")) == 3


@pytest.mark.parametrize("call", ["poll", "find", "cancel"])
def test_a_controller_that_is_away(programs: Programs, tmp_path: Path, call: str) -> None:
    programs.answer("squeue", "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", 1)
    back_end = slurm(tmp_path)
    with pytest.raises(UserError, match="Unable to contact slurm controller"):
        back_end.find("x", 1) if call == "find" else getattr(back_end, call)(["1"])


def test_find(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "")
    programs.answer("sacct", "4_[2-3]|PENDING\n4_1|RUNNING\n", when=("--name=arr",))
    programs.answer("sacct", "7|PENDING\n", when=("--name=one",))
    programs.answer("sacct", "6|CANCELLED by 1\n7|PENDING\n8|RUNNING\n9|RUNNING\n", when=("--name=twice",))
    programs.answer("sacct", "")
    back_end = slurm(tmp_path)
    array = back_end.find("arr", 3)
    assert array is not None
    assert (array.id, list(array.elements)) == ("4", ["4_1", "4_2", "4_3"])
    single = back_end.find("one", 1)
    assert single is not None
    assert (single.id, list(single.elements)) == ("7", ["7"])
    assert back_end.find("none", 1) is None
    twice = back_end.find("twice", 1)
    assert twice is not None and twice.id == "8"
    assert back_end.copies(["twice"]) == ["7", "8", "9"]
    assert all("--states=all" in call["argv"] for call in programs.calls("squeue"))


def test_an_array_of_one_is_found_as_one(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "4_1|RUNNING\n")
    programs.answer("sacct", "")
    receipt = slurm(tmp_path).find("arr", 1)
    assert receipt is not None
    assert list(receipt.elements) == ["4_1"]


def test_cancel(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.batch.schedulers.slurm.KILL_WAIT", 0.0)
    both = "1|RUNNING" + ROW + "2|PENDING" + ROW + "3|FAILED" + ROW + "5|RUNNING" + ROW
    programs.answer("squeue", both, times=1)
    programs.answer("squeue", "1|RUNNING" + ROW + "2|CANCELLED" + ROW, times=1)
    programs.answer("squeue", "1|CANCELLED" + ROW)
    programs.answer("scancel", "", "scancel: error: Kill job error on job id 5: Access/permission denied\n", 1, times=1)
    programs.answer("scancel")
    assert slurm(tmp_path).cancel(["1", "2", "3", "4_2", "5"]) == {
        "1": "ended",
        "2": "ended",
        "3": "already over",
        "4_2": "already over",
        "5": "Access/permission denied",
    }
    first, second = (call["argv"] for call in programs.calls("scancel"))
    assert first == ["1", "2", "5"]
    assert second == ["--signal=KILL", "--full", "1"]


def test_nothing_to_cancel_calls_nothing(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "")
    assert slurm(tmp_path).cancel(["1", "2"]) == {"1": "already over", "2": "already over"}
    assert not programs.calls("scancel")


def test_check(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs.directory))
    with pytest.raises(UserError, match=re.escape("longhorn: sbatch, squeue, scancel: not on PATH")) as caught:
        Slurm.check(SITE)
    assert "--dry-run" in str(caught.value)
    for name in ("sbatch", "squeue", "scancel"):
        programs.answer(name)
    Slurm.check(SITE)
    assert os.environ["PATH"] == str(programs.directory)


def test_a_live_state_from_accounting_alone_is_ignored(programs: Programs, tmp_path: Path) -> None:
    programs.answer("squeue", "")
    times = "2026-11-21T15:51:44|2026-11-21T15:52:56|Unknown|20|n2"
    programs.answer("sacct", f"1|RUNNING|0:0|{times}||1M|None\n2|PENDING|0:0|{times}|||\n3|FAILED|1:0|{times}|||\n")
    assert list(slurm(tmp_path).poll(["1", "2", "3"])) == ["3"]


@pytest.mark.parametrize("signal", [9, 15, 1])
def test_a_killed_client_may_have_submitted_the_job(programs: Programs, tmp_path: Path, signal: int) -> None:
    program = tmp_path / "killed"
    program.write_text(f"#!/bin/bash\nkill -{signal} $$\n")
    program.chmod(0o755)
    for argv in ([str(program)], ["bash", "-c", '"$1"', "x", str(program)]):
        with pytest.raises(UnclearError, match="the scheduler may have accepted the job"):
            submit_script(argv, {"PATH": os.environ["PATH"]}, DIALECT)
