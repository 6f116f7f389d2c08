"""Tests of the checks with Slurm before submission, and of how Slurm's answers are interpreted."""

import getpass
import re
from pathlib import Path

import pytest
from programs import Programs

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.slurm_dialect import DIALECT
from hpcbench.batch.schedulers.slurm_preflight import preflight
from hpcbench.errors import UserError

START = "sbatch: Job 77 to start at 2026-11-23T17:05:00 using 8 processors on nodes n[1-2] in partition batch\n"
FAILED = "allocation failure: "


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four jobs, two with two nodes and two with three."""
    for k in range(4):
        (tmp_path / f"j{k}").mkdir()
        head = f"#SBATCH --job-name=j{k}\n#SBATCH --nodes={2 + k % 2}\n#SBATCH --output={tmp_path}/j{k}/out.log\n"
        (tmp_path / f"j{k}" / "job.sh").write_text(f"#!/bin/bash\n{head}true\n")
    return tmp_path


JOBS = [BatchJob(f"j{k}", f"j{k}/job.sh", [f"j{k}"]) for k in range(4)]


def asked(root: Path, account: str | None = None) -> list[str]:
    return list(preflight(root, JOBS, account, DIALECT))


def silent(programs: Programs) -> None:
    """Let accounting fail."""
    programs.answer("sacctmgr", "", "sacctmgr: error: no database\n", status=1)


def test_one_job_of_each_kind_is_checked_and_none_submitted(root: Path, programs: Programs) -> None:
    programs.answer("sbatch", "", START)
    silent(programs)
    assert asked(root) == [
        f"if submitted now, j{k} would start at 2026-11-23T17:05:00 on n[1-2] in batch" for k in (0, 1)
    ]
    calls = [call["argv"] for call in programs.calls("sbatch")]
    assert calls == [["--test-only", f"{root}/j{k}/job.sh"] for k in (0, 1)]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (f"{FAILED}Invalid account or account/partition combination specified", "set account: in the study"),
        (f"{FAILED}Requested node configuration is not available", "check node: and scheduler: of the site file"),
        (f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)", "set walltime: in the study"),
        ("sbatch: error: invalid partition specified: x", "set queue: in the study"),
    ],
)
def test_a_job_that_slurm_would_refuse_is_refused_with_the_remedy(
    root: Path, programs: Programs, error: str, remedy: str
) -> None:
    programs.answer("sbatch", "", f"{error}\n", status=1)
    with pytest.raises(UserError, match=f"Slurm would refuse j0: {re.escape(error)}: .*{remedy}"):
        asked(root)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("sbatch: error: Unable to contact slurm controller (connect failure)", 1),
        ("sbatch: error: Socket timed out on send/recv operation", 1),
        ("sbatch: unrecognized option '--test-only'", 255),
        ("a banner of the site", 0),
    ],
)
def test_an_unclear_answer_does_not_prevent_submission(root: Path, programs: Programs, error: str, status: int) -> None:
    programs.answer("sbatch", "", f"{error}\n", status=status)
    silent(programs)
    assert asked(root) == []


def test_the_wait_for_a_silent_controller_is_short(
    root: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.batch.schedulers.slurm_preflight.PATIENCE", 0.2)
    programs.answer("sbatch", START, sleep=60)
    silent(programs)
    notes = asked(root)
    assert len(notes) == 2 and all("could not check whether Slurm" in line for line in notes)


def test_jobs_beyond_what_a_user_may_have_are_refused(root: Path, programs: Programs) -> None:
    programs.answer("sbatch", "", START)
    programs.answer("sacctmgr", "other|||100\nmine|||6\n")
    programs.answer("squeue", "1\n2_1\n2_2\n")
    with pytest.raises(
        UserError, match=r"4 jobs: Slurm accepts at most 6 of your jobs at a time .*, and 3 are in the queue"
    ):
        asked(root, "mine")
    assert asked(root)[-1] == "Slurm accepts at most 100 of your jobs at a time (3 in the queue now)"


REFUSED = f"{FAILED}Invalid account or account/partition combination specified\n"


def test_the_message_about_a_refused_account_lists_those_of_the_user(root: Path, programs: Programs) -> None:
    programs.answer("sbatch", "", REFUSED, status=1)
    programs.answer("sacctmgr", "chem|||\nphys|gpu||5\nchem|debug||\n")
    accounts = r"chem, phys \(in partition gpu only\), chem \(in partition debug only\) \(sacctmgr show assoc"
    with pytest.raises(UserError, match=f"set account: in the study .*; your accounts are {accounts}"):
        asked(root)
    (call,) = programs.calls("sacctmgr")
    assert f"user={getpass.getuser()}" in call["argv"]


@pytest.mark.parametrize(
    ("status", "message"), [(0, "; sacctmgr show assoc lists no account for you: ask"), (1, "this job$")]
)
def test_accounts_that_are_not_listed(root: Path, programs: Programs, status: int, message: str) -> None:
    programs.answer("sbatch", "", REFUSED, status=1)
    programs.answer("sacctmgr", "", status=status)
    with pytest.raises(UserError, match=rf"to an account that may run {'this job' if status == 0 else ''}{message}"):
        asked(root)


def test_an_account_of_another_user_is_refused(root: Path, programs: Programs) -> None:
    programs.answer("sbatch", "", START)
    programs.answer("sacctmgr", "mine|||\nours|||\n")
    with pytest.raises(
        UserError, match=r"account theirs is not among your accounts on this machine .* lists mine, ours"
    ):
        asked(root, "theirs")
    assert len(asked(root, "ours")) == 2
