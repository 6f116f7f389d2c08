"""Tests of 1-bit Adam: agreement with the published algorithm, bytes of the codec, and error feedback."""

from itertools import accumulate
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("onebit_worker.py")
RANKS, WARM, STEPS, LAYOUTS = 4, 2, 4, 3

WEIGHTS = 1e-9
"""Tolerance for Adam, as in the parity tests.

Adam divides gradients that consist of rounding errors by their own size.
"""
SINGLE = 1e-6
"""Tolerance for a few roundings in fp32. NumPy and PyTorch add and divide in different orders."""


@pytest.fixture
def cases(mpi_results):
    results = mpi_results(RANKS, WORKER, "everything")

    def of(case, **wanted):
        return [r for r in results if r["case"] == case and all(r[key] == value for key, value in wanted.items())]

    return of


def test_steps_are_those_of_the_published_algorithm(cases):
    (result,) = cases("simulated", fault="none")
    assert result["first"] == result["errors"] == 0.0, "momentum and both residuals have the same bits"
    assert result["master"] <= SINGLE
    assert result["lost"] <= SINGLE, "errors of a step are kept for the next one"
    assert result["unknown"], "no rank has the norm of the mean gradient"
    assert result["unused"] > 1000 and result["used"] > 10_000, "the mask was never used"


@pytest.mark.parametrize(
    ("fault", "seen_in"),
    [
        ("worker_error_dropped", "first"),
        ("server_error_dropped", "first"),
        ("variance_not_frozen", "master"),
        ("scale_of_another_block", "lost"),
    ],
)
def test_planted_fault_is_detected(cases, fault, seen_in):
    (result,) = cases("simulated", fault=fault)
    assert result[seen_in] > 1e-2


def test_weights_without_gradients_diverge_if_signs_are_their_momenta(cases):
    (result,) = cases("simulated", fault="unused_not_cleared")
    assert result["master"] > 100, "a magnitude over a variance of zero"
    assert result["errors"] > 0.1


def test_the_warm_up_has_the_bits_of_adam(cases):
    results = cases("warm_up")
    assert len(results) == RANKS
    for result in results:
        assert result["same"] == [True] * WARM + [False] * (STEPS - WARM)
        assert result["agree"]


def test_after_the_warm_up_only_the_codecs_bytes_travel(cases):
    for result in cases("warm_up"):
        assert result["gradients"] == [result["gradients"][0] * min(k, WARM) for k in range(1, STEPS + 1)]
        message, wire = result["one_step"]
        assert message == result["gradients"][0]
        assert result["momenta"] == [[message * k, wire * k] for k in (0, 0, 1, 2)]
        assert 1 / 32 < wire / message < 1 / 28
    for of_steps, counted in (
        (0, [result["gradients"] for result in cases("warm_up")]),
        (1, [[message for message, _ in result["momenta"]] for result in cases("warm_up")]),
    ):
        expected = list(accumulate(cases("warm_up")[0]["predicted"][of_steps]))
        assert [sum(ranks) for ranks in zip(*counted, strict=True)] == expected, "in the model of volumes"


def test_lossless_momenta_train_like_adam_with_a_frozen_variance_in_one_process(cases):
    results = [result for name in ("exact", "packed") for result in cases("layouts", scheme=name, fault="nullcontext")]
    errors = [result["error"] for result in results if "error" in result]
    assert len(errors) == 2 * LAYOUTS and max(errors) <= WEIGHTS


def test_clipping_by_the_replicas_norms_is_detected(cases):
    results = cases("layouts", fault="clipped_by_replicas_norms")
    errors = [result["error"] for result in results if "error" in result]
    assert len(errors) == LAYOUTS and min(errors) > 1e-4


def test_replicas_and_tied_copies_agree(cases):
    results = cases("layouts")
    assert len(results) == 4 * LAYOUTS * RANKS
    assert all(result["agree"] and result.get("differ", 0.0) == 0.0 for result in results)


def test_a_resumed_run_has_the_same_bits_and_errors(cases):
    results = cases("resumed")
    assert len(results) == RANKS
    for result in results:
        assert result["same"] and result["frozen"]
        assert result["worker_error"] > 0 and result["server_error"] > 0


def test_all_ranks_skip_a_step_whose_gradient_overflows_on_one_and_keep_their_errors(cases):
    results = cases("overflow")
    assert len(results) == RANKS
    for result in results:
        assert result["kept"] and result["skipped"] == 1 and result["moved"] and result["agree"]
