"""Tests of damaged submission files: each command works, or prints one line that names the file."""

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from batch_fakes import Fake, wait_for, wait_until_over
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.cancel import cancel
from hpcbench.batch.files import seconds, write_json
from hpcbench.batch.find_submission import find_root
from hpcbench.batch.retry import retry
from hpcbench.batch.schedulers.local import Local
from hpcbench.batch.schedulers.slurm_query import since
from hpcbench.batch.show_jobs import show_status
from hpcbench.batch.submit import Options, submit
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.cli import app
from hpcbench.contract.state import State
from hpcbench.errors import UserError
from hpcbench.files import read_json
from hpcbench.report.main import report

ODD: list[Any] = [None, True, 0, -1, 1e308, 10**400, "", "x", "../..", "\n", "\x1b[2J", "é", [], [[]], {}, {"id": 3}]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A completed local submission of two jobs: one completed, the other failed and was retried."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("robust")
        patch.setattr("tempfile.tempdir", str(place))
        patch.setenv("TMPDIR", str(place))
        fake = Fake(place / "fake")
        patch.chdir(fake.directory)
        fake.write_study(repeats=2, matrix={"scheme": ["baseline"]})
        root = submit(fake.study, Options(site=str(fake.site))).root
        wait_until_over(root)
        fake.acts({"baseline": "kill"})
        (root / "jobs" / "j0002-r2" / "status.json").unlink()
        for name in ("status.json", "log.txt"):
            (root / "runs" / "r2-baseline" / name).unlink()
        wait_for(lambda: track(root).jobs["j0002-r2"].state is State.LOST)  # its queue has ended as well
        retry(root)
        wait_until_over(root)
        yield root


FILES = [
    "submission.json",
    "site.json",
    "scheduler.json",
    "handed/0001.json",
    "handed/0003.json",
    "queues/1.json",
    "queues/2.json",
    "jobs/j0002-r2/status.json",
    "jobs/j0002-r2/process.json",
    "jobs/j0002-r2/dropped.json",
    "runs/r2-baseline/status.json",
    "runs/r2-baseline/run.json",
]


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in the data."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def changed(data: Any, place: tuple[Any, ...], value: Any, *, gone: bool) -> Any:
    """Return the data with a different value at this path, or without the value."""
    if not place:
        return value
    data = copy.deepcopy(data)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    if gone and isinstance(inner, dict):
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return data


def ask_all(root: Path) -> None:
    """Run each command, which must work or print a one-line error. Submitted jobs do not start."""
    commands: list[Callable[[], object]] = [
        lambda: show_status(track(root)),
        lambda: report([root]),
        lambda: cancel(root),
        lambda: retry(root),
        lambda: retry(root, all=True, whole_jobs=True),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Local, "begin", lambda self: "")
        for command in commands:
            try:
                command()
            except UserError as error:
                assert str(error).isprintable() and str(error), error


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), file=st.sampled_from(FILES), odd=st.sampled_from(ODD), gone=st.booleans())
def test_any_value_of_any_file_may_be_odd(written: Path, data: st.DataObject, file: str, odd: Any, gone: bool) -> None:
    root = copied(written)
    content = read_json(root / file) or {"process": {"pid": 1}, "jobs": [], "over": "time limit"}
    place = data.draw(st.sampled_from(places(content)))
    (root / file).write_text(json.dumps(changed(content, place, odd, gone=gone)), encoding="utf-8")
    ask_all(root)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x00" * 64, b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000]
)
@pytest.mark.parametrize("file", FILES)
def test_no_json_is_an_answer_or_one_line(written: Path, file: str, content: bytes) -> None:
    root = copied(written)
    (root / file).write_bytes(content)
    ask_all(root)


def copied(root: Path) -> Path:
    """Copy a submission, and adapt its paths."""
    other = root.with_name("900")
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(root, other)
    for path in other.rglob("*.json"):
        path.write_text(path.read_text(encoding="utf-8").replace(str(root), str(other)), encoding="utf-8")
    return other


def test_the_copy_equals_the_original(written: Path) -> None:
    before, after = track(written), track(copied(written))
    assert [(job, status.state) for job, status in before.jobs.items()] == [
        (job, status.state) for job, status in after.jobs.items()
    ]
    assert before.over and before.failed


def test_a_moved_submission_shows_its_states_and_starts_nothing(written: Path, fake: Fake) -> None:
    other = written.parent / "901"
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(written, other)
    assert [status.state for status in track(other).runs.values()] == [
        status.state for status in track(written).runs.values()
    ]
    with pytest.raises(UserError, match="was moved or copied from"):
        retry(other, all=True)
    shutil.rmtree(other)


def test_another_path_of_the_same_directory_is_not_a_move(written: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(written.parent)
    root = tmp_path / "alias" / written.name
    assert track(root).jobs == track(written).jobs
    assert retry(root).jobs == []


def test_a_damaged_old_submission_does_not_prevent_a_new_one(fake: Fake) -> None:
    first = submit(fake.study, Options(site=str(fake.site))).root
    wait_until_over(first)
    (first / "submission.json").write_text("{")
    (first.parent / "²").mkdir()  # a digit that is not a number
    second = submit(fake.study, Options(site=str(fake.site))).root
    assert second.name == "002" and find_root(first.parent) == second
    wait_until_over(second)


def test_temporary_files_of_a_killed_command_are_removed_by_the_next(fake: Fake) -> None:
    code = (
        "import os, sys, hpcbench.batch.write_submission as w\n"
        "from pathlib import Path\n"
        "import hpcbench.batch.submit as s\n"
        "w.run_file = lambda *a, **k: os.kill(os.getpid(), 9)\n"
        "s.submit(Path(sys.argv[1]), s.Options(site=sys.argv[2], dry_run=True))"
    )
    base = fake.directory / "results" / "fake" / "dry-run"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code, str(fake.study), str(fake.site)], env=environment)
    assert done.returncode == -9 and any(path.name.endswith(".tmp") for path in base.iterdir())
    submit(fake.study, Options(site=str(fake.site), dry_run=True))
    assert [path.name for path in base.iterdir()] == ["001"]


def test_status_of_a_submission_that_cannot_be_written_is_shown(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copied(written)
    (root / "scheduler.json").unlink(missing_ok=True)

    def full(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert track(root).over
    assert not list(root.glob("*.tmp"))


def test_jobs_beyond_the_four_digits_of_their_files_stay_in_order(tmp_path: Path) -> None:
    (tmp_path / "handed").mkdir()
    for number in (9999, 10000, 10001):
        data = {"number": number, "name": f"n{number}", "script": "s", "jobs": ["j"], "array": False, "begun": {"j": 0}}
        write_json(tmp_path / "handed" / f"{number:04d}.json", {**data, "time": "2026-11-21T06:30:00Z"})
    ledger = Ledger(tmp_path)
    last = ledger.of("j")
    assert last is not None and last.number == 10001 and ledger.count_submissions("j") == 3
    ledger.drop(last)
    assert ledger.open(BatchJob("again", "s", ["j"]), {"j": 0}).number == 10001


def test_times() -> None:
    assert seconds("1970-01-01T00:01:00Z") == 60.0
    assert [seconds(time) for time in (None, "", "1970", "x", "1970-01-01T00:00:00")] == [None] * 5


def test_the_recorded_environment_is_readable_only_by_the_user(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:hunter2@registry.example/simple")
    monkeypatch.setenv("SSH_PASSPHRASE", "hunter2")
    monkeypatch.setenv("PLAIN", "said=as it is")
    root = submit(fake.study, Options(site=str(fake.site))).root
    wait_until_over(root)
    path = root / "provenance" / "submit.json"
    text = path.read_text()
    assert "hunter2" not in text and json.loads(text)["environment"]["PLAIN"] == "said=as it is"
    assert path.parent.stat().st_mode & 0o077 == 0
    [environment] = (root / "jobs").glob("*/provenance/environment.txt")
    assert environment.stat().st_mode & 0o077 == 0 and "hunter2" not in environment.read_text()


@pytest.mark.parametrize("answer", ["refused", "denied", "ended"])
def test_only_cancelled_jobs_are_recorded_as_cancelled(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    fake.acts({"baseline": "sleep"})
    root = submit(fake.study, Options(site=str(fake.site))).root
    wait_for(lambda: fake.children)
    real = Local.cancel

    def end(self: Local, ids: Sequence[str]) -> Mapping[str, str]:
        assert Ledger(root).submitted[0].cancelled  # before the job is over
        if answer == "refused":
            raise UserError("scancel: Unable to contact slurm controller")
        return real(self, ids) if answer == "ended" else dict.fromkeys(ids, "Access/permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Local, "cancel", end)
        try:
            cancel(root)
        except UserError:
            assert answer == "refused"
    assert (Ledger(root).submitted[0].cancelled is not None) == (answer == "ended")
    cancel(root)


def test_a_dry_run_is_not_watched(fake: Fake) -> None:
    root = submit(fake.study, Options(site=str(fake.site), dry_run=True)).root
    done = CliRunner().invoke(app, ["status", "--watch", str(root)])
    assert isinstance(done.exception, UserError) and "nothing to watch" in str(done.exception)


def test_accounting_is_asked_from_the_time_of_submission_for_all_file_times(tmp_path: Path) -> None:
    assert since(tmp_path) is None
    for time, expected in [("2026-11-21T06:30:00Z", "2026-11-20T06:30:00"), (7, None), ("x", None)]:
        write_json(tmp_path / "submission.json", {"time": time})
        asked = since(tmp_path)
        assert (asked.strftime("%Y-%m-%dT%H:%M:%S") if asked else None) == expected
