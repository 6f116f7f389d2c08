"""Tests of job status files: they contain the declared keys, and are read back unchanged."""

import json
from pathlib import Path

import pytest

from hpcbench.batch.tracking import marks
from hpcbench.contract.mark import JOB_KEYS, RUN_KEYS, Mark, format_mark, read_mark
from hpcbench.job.status_files import StatusFiles, StatusRecorder


def test_a_job_writes_the_keys_that_are_declared(tmp_path: Path) -> None:
    directories = {"jobs/j1": JOB_KEYS, "runs/r1": RUN_KEYS}
    for name in directories:
        (tmp_path / name).mkdir(parents=True)
    files = StatusFiles(tmp_path, tmp_path / "jobs" / "j1")
    start = "2026-01-01T00:00:00Z"
    recorder = StatusRecorder(
        files=files, root=tmp_path, job="j1", id="77", hosts=["n1", "n2"], attempt=2, start=start, is_ours=lambda: True
    )
    for has_ended in (False, True):
        state, status, limit = ("ended", 3, "walltime") if has_ended else ("running", None, "")
        files.failure = "/scratch: Disk quota exceeded" if has_ended else ""
        assert recorder.record_job(state, status)
        assert recorder.record_run("r1", "2026-01-01T00:00:05Z", state, status, limit=limit)
        for name, keys in directories.items():
            written = json.loads((tmp_path / name / "status.json").read_text())
            later = ("exit", "end", "limit", "why")
            assert tuple(written) == tuple(key for key in keys if has_ended or key not in later)
            mark = read_mark(tmp_path / name)
            assert mark is not None
            for key, value in written.items():
                assert getattr(mark, key) == (tuple(value) if isinstance(value, list) else value)
            assert list(json.loads(format_mark(mark)).items()) == list(written.items())


@pytest.mark.parametrize(
    ("content", "mark"),
    [
        ('{"state": "ended", "attempt": 2, "exit": 75, "end": "x", "id": "7"}', Mark("ended", 2, 75, None, "x", "7")),
        ('{"state": 3, "exit": true, "attempt": "2"}', Mark("")),
        (
            '{"state": "running", "hosts": ["n1", 2, "n3"], "exit": 1' + "0" * 30 + "}",
            Mark("running", hosts=("n1", "n3")),
        ),
        ("{}", Mark("")),
        ("[1]", Mark("")),
        ('{"state"', Mark("")),
        ("", Mark("")),
        ("[" * 100_000, Mark("")),
    ],
)
def test_a_field_that_is_not_what_it_should_be_counts_as_missing(tmp_path: Path, content: str, mark: Mark) -> None:
    assert read_mark(tmp_path) is None
    (tmp_path / "status.json").write_text(content)
    assert read_mark(tmp_path) == mark
    assert marks.read_mark(tmp_path) == (mark if mark.state else None), "of a job it is as if there were none"
