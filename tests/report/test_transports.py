"""Tests that reports name the transport of runs and do not compare runs over different transports."""

import json
from pathlib import Path

import pytest
from planted_results import Planted, write
from report_tables import cell, cells

from hpcbench.report.main import report
from hpcbench.report.sections import read


def submitted(root: Path, transports: dict[str, str | None], digest: str = "ab") -> Path:
    """Write a submission with a pair of runs. The logs name the transport of each scheme."""
    runs = [Planted(scheme, 1, seconds, 2.7) for scheme, seconds in (("baseline", 0.4), ("naive-zfp8", 0.2))]
    path = write(root, runs) / "submission.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "digest": digest}))
    for run in runs:
        if transport := transports.get(run.scheme):
            log = root / "runs" / run.id / "log.txt"
            environment = '"event": "environment", '
            text = log.read_text()
            assert environment in text
            log.write_text(text.replace(environment, f'{environment}"transport": "{transport}", '))
    return root


BOTH = ("baseline", "naive-zfp8")


def test_a_report_names_nccl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report([submitted(tmp_path / "001", dict.fromkeys(BOTH, "nccl 2.27.5"))], "md")
    text = capsys.readouterr().out
    assert "baseline: uncompressed, NCCL's own collectives" in text
    assert "MPI library's" not in text


@pytest.mark.parametrize("other", ["mpi", None], ids=["mpi", "unknown"])
def test_runs_over_two_transports_make_no_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str | None
) -> None:
    root = submitted(tmp_path / "001", {"baseline": other, "naive-zfp8": "nccl 2.27.5"})
    compared = cells(root)
    assert len(compared) == 2
    rows = {scheme: each.row(scheme) for each in compared for scheme in BOTH if each.row(scheme)}
    assert rows["naive-zfp8"] is not None and rows["naive-zfp8"].speed is None
    report([root], "md")
    text = capsys.readouterr().out
    assert "train.transport nccl" in text
    assert f"train.transport {other or 'unknown'}" in text


def test_versions_of_nccl_are_named_but_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = submitted(tmp_path / "001", {"baseline": "nccl 2.27.5", "naive-zfp8": "nccl 2.28.3"})
    row = cell(root).row("naive-zfp8")
    assert row is not None and row.speed is not None
    report([root], "md")
    named = "The runs differ in transport: nccl 2.27.5 (r1-baseline), nccl 2.28.3 (r1-naive-zfp8)."
    assert named in capsys.readouterr().out


def test_submissions_over_two_transports_are_not_pooled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roots = [submitted(tmp_path / name, dict.fromkeys(BOTH, name)) for name in ("mpi", "nccl 2.27.5")]
    assert len(read(roots).sections) == 2
    assert "not pooled, because the runs differ in transport" in capsys.readouterr().err


def test_a_comparison_with_an_earlier_submission_names_the_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier, now = (submitted(tmp_path / name, dict.fromkeys(BOTH, name)) for name in ("mpi", "nccl 2.27.5"))
    report([now], "md", against=earlier)
    assert "transport nccl 2.27.5, was mpi" in capsys.readouterr().out


def test_links_of_another_transport_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = '2.27.5", "links": "links.json", "links_note": "measured over mpi, but the run uses nccl'
    report([submitted(tmp_path / "001", dict.fromkeys(BOTH, f"nccl {note}"))], "md")
    assert capsys.readouterr().out.count("links links.json: measured over mpi, but the run uses nccl") == 1
