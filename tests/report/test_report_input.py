"""Tests of the input of `report`: results, logs, and other files."""

import json
import os
import re
from pathlib import Path

import pytest
from planted_results import Planted, log_lines, write

from hpcbench.errors import UserError
from hpcbench.report.main import report
from hpcbench.report.sections import read

PAIR = [Planted(scheme, k, 0.2 * k, 2.7) for k in (1, 2) for scheme in ("baseline", "mzhybrid")]


def test_the_newest_of_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("002", "010", "9"):
        write(tmp_path / "demo" / name, PAIR)
    (tmp_path / "demo" / "099").mkdir()
    assert report([tmp_path / "demo"]) == 0
    assert str(tmp_path / "demo" / "010") in capsys.readouterr().err


def test_a_single_log_is_shown_without_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.log"
    path.write_text("\n".join([*log_lines(Planted("mzhybrid", 1, 0.2, 2.71)), ""]))
    assert report([path]) == 0
    out = capsys.readouterr().out
    assert "r1-mzhybrid" in out and "completed" in out and "12/12" in out and "2.7100" in out
    assert "baseline" not in out


def test_logs_with_a_baseline_among_them_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path / "001", PAIR)
    assert report(sorted(root.glob("runs/*/log.txt")), tables="method") == 0
    out = capsys.readouterr().out
    assert "vs baseline" in out and "(number of pairs: 2)" in out


def test_logs_of_two_submissions_make_no_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "001", PAIR[:1])
    write(tmp_path / "002", PAIR[1:2])
    report([tmp_path / "001/runs/r1-baseline/log.txt", tmp_path / "002/runs/r1-mzhybrid/log.txt"])
    assert "not compared (no pair with the baseline)" in " ".join(capsys.readouterr().out.split())


def test_a_cut_log_reports_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.log"
    full_text = "\n".join([*log_lines(Planted("mzhybrid", 1, 0.2, 2.71)), ""])
    path.write_text(full_text[: full_text.index("step  7/12") + 40])
    assert report([path]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "incomplete 6/12" in out
    assert "40.00" in out
    assert f"the log has no end event: after step 6 of 12, with a truncated last line ({path}:10)" in out


def test_running_runs_are_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Without a recorded end, the scheduler determines the job's state, and "slurm" is not queried from here.
    root = write(tmp_path / "001", PAIR)
    plan = json.loads((root / "submission.json").read_text())
    (root / "submission.json").write_text(json.dumps({**plan, "scheduler": "slurm"}))
    (root / "jobs/j0002-r2/status.json").unlink()
    for scheme in ("baseline", "mzhybrid"):
        (root / f"runs/r2-{scheme}/status.json").unlink()
        (root / f"runs/r2-{scheme}/log.txt").unlink()
    (root / "runs/r2-baseline/status.json").write_text('{"state": "running", "start": "2026-11-21T06:30:00Z"}')
    assert report([root]) == 0
    assert "1 of 4 runs are still running, and 1 are waiting." in capsys.readouterr().out


def plant(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / kind
    if kind == "binary":
        path.write_bytes(bytes(range(256)) * 100)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "foreign.txt":
        path.write_text("loss: 3.0\niteration 4\n")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "empty-directory":
        path.mkdir()
    elif kind == "broken-plan":
        path.mkdir()
        (path / "submission.json").write_text("{")
    return path


@pytest.mark.parametrize(
    "kind",
    [
        "binary",
        "empty",
        "foreign.txt",
        "missing",
        "loop",
        "pipe",
        "empty-directory",
        "broken-plan",
        "n" * 300,
        "a\nb\x1b[2J",
    ],
)
@pytest.mark.parametrize("format", ["table", "json"])
def test_wrong_input_is_one_line(tmp_path: Path, kind: str, format: str) -> None:
    with pytest.raises(UserError) as caught:
        report([plant(tmp_path, kind)], format)
    message = str(caught.value)
    assert "\n" not in message and "\x1b" not in message
    assert kind[:5].split("\n")[0] in message


def test_files_of_hpcbench_are_recognized(tmp_path: Path) -> None:
    """The error names what the file is, instead of the frameworks whose logs can be read."""
    root, files = write(tmp_path / "001", PAIR[:1]), [tmp_path / f"runs.{kind}" for kind in ("csv", "jsonl", "sqlite")]
    report([root], output=tmp_path / "report.json", exports=[*files, tmp_path / "runs.parquet"])
    for name, message in (
        ("report.json", f"is a stored report: for a new report of the same runs, give {root} instead"),
        *((file.name, "is an export: give the submission that was exported") for file in tmp_path.glob("runs.*")),
        ("001/submission.json", f"is the plan of a submission: give its directory, {root}"),
        ("001/runs/r1-baseline/run.json", "is a JSON file, but not a log of a run: give a submission's directory"),
    ):
        with pytest.raises(UserError, match=f"{re.escape(name)}: {re.escape(message)}"):
            read([tmp_path / name])


def test_wrong_arguments() -> None:
    with pytest.raises(UserError, match="--format xml: unknown value: use one of table, md, latex, csv, json"):
        report([Path()], "xml")
    with pytest.raises(
        UserError, match="--tables sped: is not a table: use all, or one or more of speed, phases, loss, traffic"
    ):
        report([Path()], tables="loss, sped")
    with pytest.raises(UserError, match="nothing to report"):
        report([])


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    root = write(tmp_path / "001", PAIR)
    for format in ("table", "csv"):
        with pytest.raises(UserError, match=r"--output .*/none/file: the directory .*/none does not exist"):
            report([root], format, tmp_path / "none" / "file")


def test_logs_with_nonsense_of_the_right_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path / "001", PAIR)
    path = root / "runs/r1-baseline/log.txt"
    for old, new in (
        ('"global_batch": 8', '"global_batch": 0'),
        ('"ranks": 8', '"ranks": "eight"'),
        ('"layout": {', '"layout": 3, "x": {'),
        ('"parameters": 820000', '"parameters": -1e400'),
        ("samples/s 40.00", "samples/s -inf"),
        ("time 0.200000 s", "time nan s"),
        ("time 0.200000 s", "time 0.000000 s"),
        ('"model_flops_per_sample": 640000000.0', '"model_flops_per_sample": NaN'),
        ('"loss": 2.7', '"loss": null'),
        ('"loss": 2.7', '"loss": Infinity'),
        ("wire 1000000 B", "wire 0 B"),
        ("message 1000000 B", "message 0 B"),
    ):
        full_text = path.read_text()
        assert old in full_text
        path.write_text(full_text.replace(old, new))
        for format in ("table", "md", "csv", "json"):
            report([root], format)
            assert capsys.readouterr().out
        path.write_text(full_text)


@pytest.mark.parametrize("format", ["csv", "json", "junit"])
def test_tables_are_not_asked_for_in_vain(tmp_path: Path, format: str) -> None:
    root = write(tmp_path / "001", [Planted("baseline", 1, 0.3, 2.7)])
    with pytest.raises(UserError, match=f"--tables: cannot be combined with --format {format}"):
        report([root], format, tables="speed")
    with pytest.raises(UserError, match="--tables: cannot be combined with --against"):
        report([root], tables="speed", against=root)


def test_a_submission_that_is_named_twice_is_reported_once(tmp_path: Path) -> None:
    root = write(tmp_path / "study" / "001", [Planted("baseline", 1, 0.3, 2.7)])
    assert len(read([tmp_path / "study", root, tmp_path / "study" / ".." / "study" / "001"]).sections) == 1
