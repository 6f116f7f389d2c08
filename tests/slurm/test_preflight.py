"""Tests of checks before submission. A real Slurm reports when it would start the jobs, and which it would refuse."""

import re
import sys
from pathlib import Path

import pytest
from on_slurm import OnSlurm, wait_over
from slurm_on_one_machine import Cluster

from hpcbench.errors import UserError


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path) -> OnSlurm:
    return OnSlurm(tmp_path / "place", cluster)


def test_slurm_reports_the_start_time_and_the_job_its_interpreter(place: OnSlurm, cluster: Cluster) -> None:
    place.write_site(python=sys.executable)
    place.write_study(study="asked", matrix={"scheme": ["baseline"]}, repeats=1)
    submission = place.submission()
    notes = [note for note in submission.notes if note.startswith("if submitted now, ")]
    assert len(notes) == 1 and re.search(r"at 20\d\d-\d\d-\d\dT[\d:]+ on n\d", notes[0])
    wait_over(submission.root)
    logs = [path.read_text() for path in submission.root.glob("jobs/*/out.log")]
    assert len(logs) == 1 and re.search(r"^/\S+: Python 3\.\d+\.\d+; hpcbench \S+; ", logs[0], re.MULTILINE)


def test_a_job_that_slurm_would_refuse_leaves_no_files(place: OnSlurm, cluster: Cluster) -> None:
    place.write_site(scheduler={"directives": {"--constraint": "no-such-feature"}})
    place.write_study(study="refused", matrix={"scheme": ["baseline"]}, repeats=1)
    with pytest.raises(UserError, match="sbatch --test-only: Slurm would refuse"):
        place.submit()
    assert not list((place.directory / "out").glob("*"))
    names = cluster.run(["squeue", "--noheader", "--format=%j"], check=True).stdout
    assert "refused" not in names


def test_an_unknown_account_is_refused_with_a_list_of_the_users_accounts(place: OnSlurm) -> None:
    place.write_study(study="charged", matrix={"scheme": ["baseline"]}, repeats=1, account="unknown")
    for options in ({}, {"dry_run": True, "check": True}):
        with pytest.raises(
            UserError,
            match=r"account unknown is not among your accounts .* lists root\): set `account`",
        ):
            place.submit(**options)
