"""Tests of schemes in which the MPI library compresses. The bytes sent are unknown, so no table shows a number."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, write

from hpcbench.report.main import report

ON = {"MPIR_CVAR_ENABLE_COMPRESSION": "1", "MPIR_CVAR_ZFP_PATH": "/a b"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    schemes: list[tuple[str, float, dict[str, Any]]] = [
        ("baseline", 0.3, {}),
        ("identity", 0.31, {}),
        ("mvapich", 0.2, {"environment": ON}),
    ]
    runs = [Planted(name, k, s + k / 1000, 2.7 + k / 1000, **more) for name, s, more in schemes for k in (1, 2, 3)]
    return write(tmp_path / "001", runs)


def printed(root: Path, capsys: pytest.CaptureFixture[str], format: str) -> str:
    assert report([root], format) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", ["160", "80"])
def test_the_table_says_unknown(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    out = printed(root, capsys, "table")
    (table,) = (part for part in out.split("\n\n") if "wire/message" in part)
    expected_values = {row.split()[0]: row.split()[-1] for row in table.splitlines()[1:]}
    assert expected_values == {"baseline": "1.000", "identity": "1.000", "mvapich": "unknown"}, out


def test_the_sentences_name_the_variables_and_call_it_no_control(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    out = printed(root, capsys, "table")
    assert (
        "mvapich ran with environment MPIR_CVAR_ENABLE_COMPRESSION=1 MPIR_CVAR_ZFP_PATH='/a b'. hpcbench cannot count"
        in out
    )
    assert (
        "Yes. On this machine (gpt-tiny 0.8 M parameters, 12 steps) compression pays. Best: mvapich, 1.50 times" in out
    )
    assert "identity, the same algorithm without a codec" in out and "mvapich, the same algorithm" not in out


def test_markdown_and_csv_say_unknown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = next(line for line in printed(root, capsys, "md").splitlines() if line.startswith("| mvapich"))
    assert row.split("|")[7].strip() == "unknown"
    rows = {entry["scheme"]: entry for entry in csv.DictReader(io.StringIO(printed(root, capsys, "csv")))}
    assert {name: entry["wire_over_message"] for name, entry in rows.items()} == {
        "baseline": "1.0",
        "identity": "1.0",
        "mvapich": "unknown",
    }


def test_json_has_no_wire_bytes_of_such_a_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cell,) = json.loads(printed(root, capsys, "json"))["submissions"][0]["cells"]
    assert {row["scheme"]: row["wire_over_message"] for row in cell["schemes"]} == {
        "baseline": 1.0,
        "identity": 1.0,
        "mvapich": "unknown",
    }
    for run in cell["runs"]:
        unknown = run["scheme"] == "mvapich"
        assert run["message_bytes"] == 10_000_000
        assert run["wire_bytes"] == ("unknown" if unknown else 10_000_000)
        assert [item["wire_bytes"] for item in run["traffic"]] == [run["wire_bytes"]]
        assert run["settings"]["scheme"]["environment"] == (ON if unknown else {})


def test_logs_alone_do_not_take_it_for_the_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    root = write(tmp_path, [Planted("mvapich", 1, 0.2, 2.7, environment=ON), Planted("plain", 1, 0.3, 2.7)])
    assert report([root / "runs" / "r1-mvapich" / "log.txt", root / "runs" / "r1-plain" / "log.txt"]) == 0
    out = capsys.readouterr().out
    assert "baseline:" not in out
    unknown = {line.split()[0]: "unknown" in line.split() for line in out.splitlines() if line.startswith("r1-")}
    assert unknown == {"r1-mvapich": True, "r1-plain": False}


def test_a_baseline_with_variables_is_not_called_uncompressed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    root = write(tmp_path, [Planted("baseline", 1, 0.2, 2.7, environment=ON), Planted("naive-mpc", 1, 0.3, 2.7)])
    assert report([root]) == 0
    assert "baseline: baseline, MPI library's collectives" in capsys.readouterr().out
