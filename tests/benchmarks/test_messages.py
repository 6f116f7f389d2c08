"""Tests of benchmarks/messages.py on synthetic samples: errors of codecs, ranks of matrices, and refusals."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kept_runs import gaussian, low, message, write_run
from printed import Printed, run
from stored_results import ROOT

from hpcbench.codecs.registry import get_codec

sys.path.append(str(ROOT / "benchmarks"))

import messages

SHAPE = (64, 32)
GRAD, ACT, BACK = "DP BACKWARD GRAD", "TP FORWARD ACT", "PP BACKWARD GRAD"


def test_planted_samples(tiny: Callable[..., Printed], tmp_path: Path) -> None:
    few = [
        message(GRAD, {"w": low(SHAPE, 2, 1, noise=1e-3), "zeros": np.zeros(SHAPE)}),
        *(message(ACT, {"": gaussian(SHAPE, k)}, k) for k in range(3)),
        message(BACK, {"": gaussian(SHAPE, 9)}),
        message("CP FORWARD ACT", {"": low(SHAPE, 1, 5)}),
    ]
    for scheme in ("baseline", "naive-zfp8"):
        write_run(tmp_path, {20: few}, scheme)
    printed = tiny("messages.py", str(tmp_path), "--codecs", "zfp:8", "xpk", "topk:0.01")
    rows = {tuple(cells[:2]): cells[2:] for cells in printed.rows()}
    gradients = rows["baseline", GRAD]
    assert gradients[:5] == ["all-reduce", "float32", "20", "1", "0.02"] and gradients[5] == "49.9%"
    assert float(gradients[6]) < 0.15 and float(rows["naive-zfp8", ACT][6]) == pytest.approx(1, abs=0.02)
    assert gradients[7].startswith("4.00 ") and gradients[8].endswith("exact") and rows["baseline", ACT][3] == "3"
    summary = [line for line in printed.lines if line.startswith("effective")]
    ranks = {line.removeprefix("effective rank of ").partition(":")[0]: line for line in summary}
    assert ranks["gradients"].endswith("(2 matrices)") and ranks["activations"].endswith("(6 matrices)")
    assert float(ranks["activations"].split()[4]) == pytest.approx(1, abs=0.02), "keys by head do not count"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_codecs_give_ratio_and_error(dtype: Any) -> None:
    x = (np.random.default_rng(12).standard_normal(5000) * 1e-2).astype(dtype)
    results = {name: messages.encode(name, x) for name in (*messages.CODECS, "none")}
    for name, result in results.items():
        assert result is not None
        if get_codec(name).lossless:
            assert result.exact and result.relative_rmse == 0, name
        else:
            assert result.ratio > 1 or (name == "bf16" and dtype != np.float32) or name == "zfp:16"
    wide = x.astype(np.float64)
    largest = np.argsort(-np.abs(wide), kind="stable")[:50]
    missing = np.delete(wide, largest)
    expected = math.sqrt((missing**2).sum() / (wide**2).sum())
    assert results["topk:0.01"].relative_rmse == pytest.approx(expected, rel=1e-4)
    assert results["bf16"].relative_rmse < 2**-8


def test_a_codec_that_does_not_take_a_type_has_no_result() -> None:
    assert messages.encode("zfp:8", np.ones(9)) is None


def test_a_lossless_codec_that_loses_a_bit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lossy:
        def __init__(self, codec: Any) -> None:
            self._codec = codec

        def __getattr__(self, name: str) -> Any:
            return getattr(self._codec, name)

        def decode(self, wire: Any, out: Any, **others: Any) -> None:
            self._codec.decode(wire, out, **others)
            out.view(np.uint8)[5] ^= 1

    monkeypatch.setattr(
        messages, "get_codec", lambda name: Lossy(get_codec(name)) if name == "xpk" else get_codec(name)
    )
    measured = messages.measure(message(GRAD, {"w": gaussian(SHAPE, 1)}), ["mpc", "xpk"])
    key = messages.Key("baseline", GRAD, "all-reduce", "float32", 7)
    assert messages.lossy({key: [measured]}, ["mpc", "xpk"]) == ["xpk"]


@pytest.mark.parametrize("k", [1, 5, 12])
def test_k_equal_singular_values_are_rank_k(k: int) -> None:
    left, right = (np.linalg.qr(gaussian((n, k), n))[0] for n in (40, 25))
    assert messages.effective_rank(left @ right.T) == pytest.approx(k, rel=1e-6)
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert messages.effective_rank(np.diag([3.0, 1.0])) == pytest.approx(math.exp(entropy)), "not of the squares"


def test_matrices_are_where_the_parts_say() -> None:
    a, b = gaussian((10, 12), 9).astype(np.float32), gaussian((9, 8), 10).astype(np.float32)
    sample = message("PP FORWARD ACT", {"a": a, "bias": np.ones((1, 20)), "b": b, "thin": np.ones((50, 7))})
    values = np.frombuffer(sample.values, np.float32)
    first, second = messages.matrices(sample, values)
    assert np.array_equal(first, a) and np.array_equal(second, b)
    (cut,) = messages.matrices(sample, values[: 12 * 8 + 5])
    assert np.array_equal(cut, a[:8]), "whole rows of what the file holds"
    assert not list(messages.matrices(sample, values[:50]))


def test_long_matrices_are_thinned_and_bad_ones_left_out() -> None:
    bad = gaussian((9, 9), 13)
    bad[4, 4] = np.nan
    sample = message(ACT, {"": gaussian((messages.LONGEST + 300, 16), 11), "zeros": np.zeros((9, 9)), "bad": bad})
    (rank,) = messages.relative_ranks(sample, np.frombuffer(sample.values, np.float32))
    assert rank == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("what", "phrase"),
    [
        ("empty", "no run in it has sampled messages: submit a study with `train: {keep_messages"),
        ("damaged", "not a complete file of message samples"),
        ("codec", "zpf:8"),
    ],
)
def test_refusals_are_one_line(tmp_path: Path, what: str, phrase: str) -> None:
    if what != "empty":
        directory = write_run(tmp_path, {7: [message(GRAD, {"w": gaussian(SHAPE, 1)})]})
    if what == "damaged":
        (directory / "messages/step-7-rank-3.zip").write_bytes(b"no archive")
    done = run("messages.py", str(tmp_path), *(["--codecs", "zpf:8"] if what == "codec" else []))
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and done.stdout == "" and line.startswith("messages: ") and phrase in line
