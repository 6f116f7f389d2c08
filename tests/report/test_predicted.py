"""Tests of predictions made at submission, compared with the measurements."""

import json
from pathlib import Path

import pytest
from planted_results import Planted, write
from report_tables import entries

from hpcbench.predict.prediction_file import NAME
from hpcbench.report.build import build
from hpcbench.report.sections import read


def plant(root: Path, scale: float = 1.0, basis: str = "data sheet", **predicted: float) -> Path:
    """Return two schemes with two repeats each, and their predictions."""
    runs = [
        Planted(scheme, repeat, scale * seconds, 2.7, cell={"nodes": 2})
        for repeat in (1, 2)
        for scheme, seconds in (("baseline", 0.4), ("naive-zfp8", 0.2))
    ]
    write(root, runs)
    document = {
        "schema": 1,
        "predictions": [
            {
                "cell": "nodes=2",
                "scheme": scheme.replace("_", "-"),
                "step_seconds": {"value": value, "low": 0.8 * value, "high": 1.2 * value, "basis": basis},
            }
            for scheme, value in predicted.items()
        ],
    }
    (root / NAME).write_text(json.dumps(document))
    return root


def test_predicted_stands_beside_measured_with_its_error(tmp_path: Path) -> None:
    document = build(
        read([plant(tmp_path / "001", baseline=0.44, naive_zfp8=0.1)]).sections,
        tables=("predicted", "prediction-error"),
    )
    table_rows = entries(document, "predicted")
    near, far = table_rows["baseline"], table_rows["naive-zfp8"]
    assert near["measured_step_seconds"].value == pytest.approx(0.4)
    assert near["prediction_error"].value == pytest.approx(0.1) and near["prediction_error"].tone == ""
    assert near["prediction_basis"].value == "data sheet"
    assert far["prediction_error"].value == pytest.approx(-0.5)
    assert far["prediction_error"].tone == "warning", "what was measured lies outside of the interval"
    every = entries(document, "prediction-error")["all runs"]
    assert every["runs"].value == 4
    assert every["mean_error"].value == pytest.approx(0.3) and every["worst_error"].value == pytest.approx(0.5)
    assert "nodes 2" in every["worst_cell"].shown


def test_errors_of_several_submissions_are_put_together(tmp_path: Path) -> None:
    roots = [plant(tmp_path / "001", baseline=0.4), plant(tmp_path / "002", 2.0, baseline=0.4)]
    document = build(read(roots).sections)
    every = [
        block for chapter in document.chapters if chapter.subtitle == "over all submissions" for block in chapter.blocks
    ]
    assert len(every) == 1
    table_rows = entries(document, "prediction-error")["all runs"]
    assert table_rows["runs"].value == 4 and table_rows["mean_error"].value == pytest.approx(0.25), (
        "the last one is of both"
    )


def test_a_prediction_that_rests_on_assumptions_is_left_out(tmp_path: Path) -> None:
    root = plant(tmp_path / "001", basis="assumed", baseline=0.44, naive_zfp8=0.1)
    document = build(read([root]).sections, tables=("predicted", "prediction-error"))
    assert entries(document, "predicted") == entries(document, "prediction-error") == {}


def test_without_a_prediction_there_is_no_table(tmp_path: Path) -> None:
    write(tmp_path / "001", [Planted("baseline", 1, 0.4, 2.7)])
    document = build(read([tmp_path / "001"]).sections)
    assert entries(document, "predicted") == entries(document, "prediction-error") == {}
