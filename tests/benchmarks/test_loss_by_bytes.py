"""Tests of benchmarks/loss_by_bytes.py on a planted report."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from printed import Printed
from stored_results import ROOT

sys.path.append(str(ROOT / "benchmarks"))

import loss_by_bytes

from hpcbench.errors import UserError

LOSSES = {"naive-bf16": [2.0, 1.9, 2.1, 1.8], "naive-int4": [2.4, 2.2, 2.11, 1.82]}
LEFT_OUT = ("one-pair", "no-pair")


def _plant(path: Path) -> None:
    """Write a report in which the scheme sends half the gradients and a quarter of the weights, in fewer steps.

    The fifth run of the baseline has not started.
    """
    sent = {"naive-bf16": (100, {"DP": 3000, "ZERO": 1000}), "naive-int4": (50, {"DP": 750, "ZERO": 125})}
    runs = [
        {
            "scheme": scheme,
            "repeat": repeat,
            "state": "completed",
            "loss_valid": loss,
            "throughput_steps": steps,
            "wire_bytes": sum(by_dimension.values()),
            "dimensions": [{"dimension": name, "wire_bytes": count} for name, count in by_dimension.items()],
        }
        for scheme, (steps, by_dimension) in sent.items()
        for repeat, loss in enumerate(LOSSES[scheme], 1)
    ]
    waiting = {"state": "pending", "loss_valid": None, "throughput_steps": 0, "wire_bytes": 0, "dimensions": []}
    runs += [{"scheme": "naive-bf16", "repeat": 5, **waiting}, {**runs[-1], "repeat": 5, "loss_valid": 9.0}]
    runs += [{**runs[0], "scheme": "one-pair"}, {"scheme": "no-pair", "repeat": 1, **waiting}]
    schemes = [
        {"scheme": "naive-bf16", "loss_valid": 1.95},
        {"scheme": "naive-int4", "loss_valid": 2.1325, "loss": "inconclusive", "loss_p_apart_adjusted": 0.25},
        *({"scheme": name, "loss_valid": None, "loss": None, "loss_p_apart_adjusted": None} for name in LEFT_OUT),
    ]
    cell = {"baseline": "naive-bf16", "schemes": schemes, "runs": runs}
    path.write_text(json.dumps({"submissions": [{"study": "planted", "cells": [cell]}]}))


@pytest.mark.parametrize(("first", "difference"), [(1, "+0.1825"), (3, "+0.0150")])
def test_bytes_are_per_step_and_differences_are_paired(
    tiny: Callable[..., Printed], tmp_path: Path, first: int, difference: str
) -> None:
    _plant(tmp_path / "report.json")
    printed = tiny("loss_by_bytes.py", str(tmp_path / "report.json"), "--first-repeat", str(first))
    assert "planted: bytes of naive-bf16: DP 75.0%, ZERO 25.0%" in printed.lines
    assert not [line for line in printed.lines if any(name in line for name in LEFT_OUT)]
    (row,) = [line for line in printed.lines if "naive-int4" in line]
    cells = [cell.strip() for cell in row.strip("│ ").split("│")]
    assert cells[:4] == ["naive-int4", "0.500", "0.250", "0.438"] and cells[4].startswith(difference)
    assert cells[5:] == (["2.1325", "inconclusive", "0.250"] if first == 1 else [])


def test_a_baseline_without_a_completed_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    _plant(path)
    path.write_text(path.read_text().replace('"completed"', '"cancelled"'))
    with pytest.raises(UserError, match=r"report\.json: no run of naive-bf16, the baseline, completed"):
        loss_by_bytes.show(path, 1)


def test_stored_reports_have_the_intervals_that_they_print() -> None:
    """The interval of all repeats is that of the report."""
    for path in loss_by_bytes.STORED:
        ((submission,), baseline) = json.loads(path.read_text())["submissions"], "naive-bf16"
        (cell,) = submission["cells"]
        for row in cell["schemes"]:
            if (stored := row["loss_difference"]) is not None:
                done = [run for run in cell["runs"] if run["state"] == "completed"]
                runs, base = ([run for run in done if run["scheme"] == name] for name in (row["scheme"], baseline))
                interval = loss_by_bytes.compare_losses(runs, base, 1)
                assert (interval.estimate, interval.low) == pytest.approx((stored["estimate"], stored["low"]))
