"""Tests that speeds in stored reports equal work divided by mean step time, and can be recomputed."""

import importlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import pytest
from stored_results import ROOT

from hpcbench.report import weaknesses

REFERENCE = ROOT / "results" / "reference"
STORED = [
    "demo-2-cores/report.json",
    *(f"studies/{name}.json" for name in ("experts", "long-context", "pruning", "sparse")),
]


def cells(path: Path) -> Iterator[dict[str, Any]]:
    for submission in json.loads(path.read_text())["submissions"]:
        yield from submission["cells"]


@pytest.mark.parametrize("name", STORED)
def test_stored_speeds_are_work_over_time(name: str) -> None:
    for cell in cells(REFERENCE / name):
        runs = {(run["scheme"], run["pairing"]): run for run in cell["runs"] if run["state"] == "completed"}
        for run in runs.values():
            batch = run["settings"]["train"]["global_batch"]
            assert run["step_seconds"] == pytest.approx(run["time"]["step"], rel=1e-9)
            assert run["samples_per_s"] == pytest.approx(batch / run["time"]["step"], rel=1e-9)
        for row in cell["schemes"]:
            pairs = [
                log(runs[cell["baseline"], pairing]["time"]["step"] / run["time"]["step"])
                for (scheme, pairing), run in runs.items()
                if scheme == row["scheme"] != cell["baseline"]
            ]
            if pairs:
                assert row["speed_ratio"]["estimate"] == pytest.approx(exp(fmean(pairs)), rel=1e-9)


@pytest.mark.parametrize("name", ["experts", "long-context", "pruning"])
def test_ranks_on_virtual_hosts_of_one_machine_are_marked(name: str) -> None:
    """A site of four ranks on two cores."""
    for cell in cells(REFERENCE / "studies" / f"{name}.json"):
        assert "shared_cores" in cell["weaknesses"]


def test_schemes_that_are_one_experiment_are_named() -> None:
    for cell in cells(REFERENCE / "studies" / "sparse.json"):
        assert cell["identical"] == [["mzhybrid", "zhybrid-16-8"]]
        losses = [row["loss_valid"] for row in cell["schemes"] if row["scheme"] in cell["identical"][0]]
        assert losses[0] == losses[1], "to the last bit"


@pytest.fixture
def recompute(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(weaknesses, "WEAKNESSES", weaknesses.WEAKNESSES)  # which the script replaces
    return cast(Callable[[Path], None], importlib.import_module("stored_reports").recompute)


def test_a_second_run_changes_nothing(tmp_path: Path, recompute: Callable[[Path], None]) -> None:
    files = [Path(shutil.copy(REFERENCE / "studies" / f"pruning.{suffix}", tmp_path)) for suffix in ("json", "txt")]
    recompute(files[0])
    first = [file.read_text() for file in files]
    assert "a model that guesses has a loss of" in first[0], "the text from which the script reads the losses for scale"
    recompute(files[0])
    assert [file.read_text() for file in files] == first


def test_a_spoilt_comparison_is_made_again_and_nothing_else(tmp_path: Path, recompute: Callable[[Path], None]) -> None:
    for suffix in ("json", "txt"):
        shutil.copy(REFERENCE / "studies" / f"sparse.{suffix}", tmp_path)
    path, text = tmp_path / "sparse.json", tmp_path / "sparse.txt"
    document, before = json.loads(path.read_text()), text.read_text()
    for cell in document["submissions"][0]["cells"]:
        for run in cell["runs"]:
            run["time"]["step"] *= 1 if run["scheme"] == "baseline" else 2
    path.write_text(json.dumps(document))
    recompute(path)
    rows = [
        {row["scheme"]: row["speed_ratio"]["estimate"] for row in cell["schemes"] if row["speed_ratio"]}
        for cell in (*cells(REFERENCE / "studies" / "sparse.json"), *cells(path))
    ]
    for old, new in zip(rows[:2], rows[2:], strict=True):
        assert new == {scheme: pytest.approx(ratio / 2) for scheme, ratio in old.items()}

    def others(report: str) -> list[str]:
        """Return the lines of four tables: traffic, rows, memory and predictions."""
        blocks = report.split("\n\n")
        return [block for block in blocks if re.match(r"(Traffic|The embedding|Memory|Predicted)", block)]

    assert others(text.read_text()) == others(before) and len(others(before)) == 6
