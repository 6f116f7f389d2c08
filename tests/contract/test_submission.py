"""Tests of the submission file, which all commands read with the same schema."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from planted_results import Planted, write

from hpcbench.batch.sites.site import Site
from hpcbench.contract.submission import SchedulerKind, SubmissionFile, check_place, read_submission
from hpcbench.errors import UserError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "001", [Planted("baseline", 1, 0.25, 2.7), Planted("mzhybrid", 1, 0.2, 2.7)])


def edit(root: Path, *keys: str | int, to: Any) -> None:
    path = root / "submission.json"
    data = json.loads(path.read_text())
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    path.write_text(json.dumps(data))


def test_it_is_read_as_it_was_written(root: Path) -> None:
    submission = read_submission(root)
    content = json.loads((root / "submission.json").read_text())
    shown = submission.model_dump(mode="json")
    assert {name: shown[name] for name in content if name != "schema"} == {
        name: value for name, value in content.items() if name != "schema"
    }
    assert submission.scheduler is SchedulerKind.LOCAL and f"{submission.scheduler}" == "local"


def test_the_schedulers_are_those_that_a_site_may_have() -> None:
    scheduler = Site.model_fields["scheduler"].annotation
    assert scheduler is not None
    assert set(get_args(scheduler.model_fields["kind"].annotation)) == set(SchedulerKind)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("scheduler",), "pbs", "scheduler: Input should be 'local', 'slurm', 'lsf' or 'flux'"),
        (("scheduler",), None, "scheduler: "),
        (("name",), "../x", "name: Value error, cannot name a directory"),
        (("runs", 0, "path"), "/etc", "runs.0.path: Value error, must lie within"),
        (("runs", 0, "id"), "a/b", "runs.0.id: Value error, cannot name"),
        (("runs", 0, "job"), "j9", "occurs in one part of the file, but is missing in another part"),
        (("jobs", 0, "runs"), ["other"], "other: occurs in one part of the file"),
        (("bundles",), [{"label": "x", "script": "x.sh", "jobs": [], "array": False}], "no job: occurs in one part"),
        (("criteria",), {"loss_margin": -1}, "criteria.loss_margin: "),
        (("thresholds",), [{"quantity": "speed"}], "thresholds.0.quantity: "),
    ],
)
def test_what_submit_never_writes_is_refused_in_one_line(root: Path, keys: Any, value: Any, message: str) -> None:
    edit(root, *keys, to=value)
    with pytest.raises(UserError) as caught:
        read_submission(root)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{root / 'submission.json'}: damaged: ")


def test_a_directory_without_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"submission.json: cannot be read: .*: give a directory"):
        read_submission(tmp_path)


def test_scripts_run_where_they_were_written(root: Path, tmp_path: Path) -> None:
    check_place(root, read_submission(root))
    edit(root, "root", to=str(root))
    check_place(root, read_submission(root))
    moved = root.rename(tmp_path / "002")
    with pytest.raises(UserError, match=r"002: was moved or copied from .*001"):
        check_place(moved, read_submission(moved))


def test_all_that_a_plan_says_a_submission_says() -> None:
    needed = {name for name, field in SubmissionFile.model_fields.items() if field.is_required()}
    assert needed == {"study", "site", "scheduler", "name", "jobs", "runs", "bundles"}
