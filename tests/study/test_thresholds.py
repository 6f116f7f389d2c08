"""Tests of the thresholds of a study: thresholds refused before a run, and thresholds in the submission."""

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.contract.criteria import QuantityBound
from hpcbench.errors import UserError
from hpcbench.study.expand import expand
from hpcbench.study.load import load_study
from hpcbench.study.size import Capacity

BASE: dict[str, Any] = {
    "study": "s",
    "model": "gpt-tiny",
    "train": {"steps": 20, "global_batch": 64, "lr": 1e-3},
    "matrix": {"train.micro_batch": [1, 2], "scheme": ["baseline", "mzhybrid"]},
}


def load(directory: Path, thresholds: Any) -> list[QuantityBound]:
    path = directory / "s.yaml"
    path.write_text(json.dumps({**BASE, "thresholds": thresholds}, indent=1), encoding="utf-8")
    loaded = load_study(path)
    expand(loaded, Capacity("local", None, 2))
    return loaded.study.thresholds


def test_a_bound_may_be_for_all_runs_or_for_some(tmp_path: Path) -> None:
    every, some = load(
        tmp_path,
        [
            {"quantity": "loss", "max": 3},
            {"quantity": "speed_ratio", "min": 1.0, "scheme": "mzhybrid", "cell": {"train.micro_batch": 2}},
        ],
    )
    assert every.concerns("baseline", {"train.micro_batch": 1})
    assert some.concerns("mzhybrid", {"train.micro_batch": 2})
    assert not some.concerns("mzhybrid", {"train.micro_batch": 1})
    assert not some.concerns("baseline", {"train.micro_batch": 2})
    assert not some.concerns("mzhybrid", {})


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        ({"quantity": "loss"}, "sets no bound: give min, max or both"),
        ({"quantity": "loss", "min": 3, "max": 2}, "no value lies between min 3 and max 2: swap them"),
        ({"quantity": "speed", "min": 1}, "quantity"),
        ({"quantity": "loss", "max": 2, "confidence": 95}, "thresholds.0.confidence"),
        ({"quantity": "loss", "max": 2, "reference": 0}, "thresholds.0.reference"),
        ({"quantity": "loss_difference", "max": 1, "reference": 2}, "reference: has no meaning for loss_difference"),
        ({"quantity": "loss", "max": float("nan")}, "thresholds.0.max"),
        ({"quantity": "loss", "maximum": 2}, "max"),
        ({"quantity": "loss", "max": 2, "scheme": "zhybrid-16-8"}, "no run has the scheme and cell of this threshold"),
        ({"quantity": "loss", "max": 2, "cell": {"nodes": 4}}, "no run has the scheme and cell of this threshold"),
        ({"quantity": "loss", "max": 2, "cell": {"train.micro_batch": 3}}, "no run has the scheme"),
    ],
)
def test_a_bound_that_guards_nothing_is_refused_with_its_line(
    tmp_path: Path, threshold: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=r"s\.yaml:[0-9]+: ") as caught:
        load(tmp_path, [threshold])
    assert message in str(caught.value)
    assert "thresholds" in str(caught.value)
