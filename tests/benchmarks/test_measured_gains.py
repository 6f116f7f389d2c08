"""Tests of the comparison between predicted and measured gains."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from printed import Printed
from stored_results import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from measured_gains import CheckedCell, read_cells, summarize

TIMES = {"baseline": (4.0, [4.0, 4.0]), "naive-bf16": (2.0, [2.0, 2.2]), "naive-int8": (1.0, [1.25, 1.1])}


def test_the_gain_is_that_of_the_scheme_with_the_shortest_predicted_time(tmp_path: Path) -> None:
    rows = {**TIMES, "zhybrid-16-8": (1.6, [1.0, 1.0])}
    cells = [{"study": "dp 2", "scheme": name, "predicted": p, "measured": m} for name, (p, m) in rows.items()]
    path = tmp_path / "predict-measured-here.json"
    path.write_text(json.dumps({"cells": cells}))
    (cell,) = read_cells(path)
    assert (cell.test, cell.cell, cell.scheme, cell.predicted) == ("here", "dp 2", "naive-int8", 1.0)
    assert cell.measured == pytest.approx([0.6, 1.0]) and cell.mean == pytest.approx(0.8)


def test_the_summary_counts_disagreement(capsys: pytest.CaptureFixture[str]) -> None:
    summarize([CheckedCell("a", "x", "s", 0.05, [0.01, 0.03]), CheckedCell("b", "y", "s", 0.10, [0.12])])
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "all" in line]
    assert [word for word in rows[0] if word not in "│|"] == ["all", "2", "1", "+0.5", "+0.5", "1"]


def test_the_stored_results_are_read(tiny: Callable[..., Printed], tmp_path: Path) -> None:
    path = tmp_path / "gains.json"
    tiny("measured_gains.py", "--json", str(path))
    cells = json.loads(path.read_text())["cells"]
    assert len(cells) == 10 and {each["scheme"] for each in cells} == {"naive-int8"}
