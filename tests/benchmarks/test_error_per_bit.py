"""Tests of benchmarks/error_per_bit.py on synthetic samples: bits, errors, the Pareto front and the figure."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kept_runs import gaussian, message, write_run
from printed import Printed
from stored_results import ROOT

sys.path.append(str(ROOT / "benchmarks"))

import error_per_bit
from error_per_bit import Point
from messages import Key, encode, read_samples

SHAPE = (64, 32)


def test_planted_samples(tiny: Callable[..., Printed], tmp_path: Path) -> None:
    spiky = gaussian(SHAPE, 7)
    spiky[:, 5] *= 30
    samples = [
        message("DP BACKWARD GRAD", {"w": gaussian(SHAPE, 1)}),
        message("TP FORWARD ACT", {"": spiky}),
        message("TP FORWARD ACT", {"": np.zeros(SHAPE)}),
        message("PP BACKWARD GRAD", {"": gaussian(SHAPE, 9)}),
        message("ZERO STEP PARAM", {"w": gaussian(SHAPE, 2)}),
    ]
    write_run(tmp_path / "runs", {20: samples}, "baseline")
    codecs = ("int8:256", "int4:32", "int4:32/256", "int4:128")
    plots = tmp_path / "plots"
    printed = tiny("error_per_bit.py", str(tmp_path / "runs"), "--codecs", *codecs, "--plots", str(plots))
    rows = {cells[0]: cells[1:] for cells in printed.rows()}
    (heading,) = [line for line in printed.lines if line.startswith("codec ")]
    kinds = ("gradients (1)", "activations (1)", "gradients of activations (1)", "weights (1)")
    assert all(kind in heading for kind in kinds), "zeros have no relative error"
    assert [float(rows[name][0]) for name in codecs] == pytest.approx([8.125, 5, 4.3125, 4.25], abs=0.05)
    errors = {name: [float(cell.rstrip("*")) for cell in rows[name][1:]] for name in codecs}
    assert errors["int4:32/256"][0] == pytest.approx(0.097, rel=0.05)
    assert errors["int4:32/256"][0] == pytest.approx(errors["int4:32"][0], rel=0.02)
    assert errors["int4:32/256"][1] < 0.8 * errors["int4:128"][1], "an outlier spoils a long block"
    assert rows["int8:256"][1].endswith("*")
    assert 4.5 < float(rows["mixed-5"][0]) <= 5 and rows["mixed-5"][2:] == ["-"] * 3
    assert {path.name for path in plots.iterdir()} == {"error-per-bit.svg", "error-per-bit.png"}


def test_mixed_widths_are_those_of_the_largest_groups_under_the_budget() -> None:
    """The bits and the error are those of one of the divisions that fill the budget, and the error is small."""
    groups = 16
    x = (gaussian((groups, 256), 3) * 4.0 ** -np.arange(groups)[:, None]).astype(np.float32).reshape(-1)
    names = ("int8:256", "int4:16/256:nonuniform", "int2:16/256")
    each = [[encode(name, row) for name in names] for row in x.reshape(groups, 256)]
    norms = np.linalg.norm(x.reshape(groups, 256).astype(np.float64), axis=1)
    divisions = []
    for wide in range(groups + 1):
        for middle in range(groups + 1 - wide):
            widths = [0] * wide + [1] * middle + [2] * (groups - wide - middle)
            coded = [row[width] for row, width in zip(each, widths, strict=True)]
            narrow = groups - wide - middle
            nbytes = 260 * wide + sum(
                codes * n + (2 * n + 3) // 4 * 4 + 16 * n for codes, n in ((128, middle), (64, narrow))
            )
            bits = 8 * (nbytes + groups) / x.size
            square = sum((c.relative_rmse * norm) ** 2 for c, norm in zip(coded, norms, strict=True) if c)
            divisions.append((bits, math.sqrt(square) / float(np.linalg.norm(norms))))
    for budget in error_per_bit.MIXED:
        point = error_per_bit.encode_mixed(x, budget)
        assert point is not None and point.bits <= budget
        assert any(point == pytest.approx(division, rel=1e-4) for division in divisions)
        least = min(error for bits, error in divisions if bits <= budget)
        alone = encode(names[1], x)
        assert alone is not None and point.relative_rmse < min(1.5 * least, 0.5 * alone.relative_rmse)
    assert error_per_bit.encode_mixed(x[:255], 5.0) is None


def test_front() -> None:
    points = {"a": Point(8, 0.01), "b": Point(4, 0.1), "b again": Point(4, 0.1), "c": Point(5, 0.1), "d": Point(4, 0.2)}
    assert error_per_bit.find_front(points) == {"a", "b", "b again"}


def test_channels() -> None:
    kinds = {
        ("DP BACKWARD GRAD", "reduce-scatter"): "gradients",
        ("EP FORWARD ACT", "all-to-all"): "activations",
        ("TP BACKWARD GRAD", "all-reduce"): "gradients of activations",
        ("ZERO STEP PARAM", "all-gather"): "weights",
        ("ZERO STEP PARAM", "all-gather of differences"): "weight differences",
    }
    for (channel, operation), kind in kinds.items():
        assert error_per_bit.find_kind(Key("run", channel, operation, "float32", 20)) == kind


def test_differences_are_recognized_by_the_scheme_of_the_run(tmp_path: Path) -> None:
    scheme = {"rules": [{"dimension": "ZERO", "codec": "int8:256", "differences": True, "from_step": 10}]}
    weights = [
        message("ZERO STEP PARAM", {"w": gaussian(SHAPE, 2)}),
        message("DP BACKWARD GRAD", {"w": gaussian(SHAPE, 1)}),
    ]
    directory = write_run(tmp_path, {5: weights, 20: weights}, "changes")
    run = json.loads((directory / "run.json").read_text())
    run["scheme"] |= {"algorithm": "encoded", "default": "none", **scheme}
    (directory / "run.json").write_text(json.dumps(run))
    kinds = {(key.step, error_per_bit.find_kind(key)) for key, _ in read_samples(tmp_path)}
    assert kinds == {(5, "weights"), (20, "weight differences"), (5, "gradients"), (20, "gradients")}
