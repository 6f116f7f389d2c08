"""Tests of correlated rounding: sums without bias, and with less error than with independent random numbers."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("correlated_worker.py")
CODECS = ["int4:32", "int8:64", "int4:32/256:nonuniform"]
LESS = {"two-shot": 0.87, "hierarchical-encoded": 0.93}
"""Bounds of the error relative to stochastic rounding. In the second algorithm, two ranks contribute to each sum."""


def results(mpi_results, codec, algorithm, how, fault=None):
    lines = [
        line
        for line in mpi_results(4, WORKER)
        if (line["codec"], line["algorithm"], line["how"], line["fault"]) == (codec, algorithm, how, fault)
    ]
    assert len(lines) == 4
    return lines


def assert_less_error(correlated, stochastic, bound):
    for one, other in zip(correlated, stochastic, strict=True):
        assert one["error"] < bound * other["error"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("algorithm", LESS)
def test_sums_have_less_error_than_with_independent_random_numbers(mpi_results, codec, algorithm):
    nearest, stochastic, correlated = (
        results(mpi_results, codec, algorithm, how) for how in ("", ":stochastic", ":correlated")
    )
    assert_less_error(correlated, stochastic, LESS[algorithm])
    assert_less_error(nearest, correlated, 1.0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("algorithm", [*LESS, "ring"])
def test_sums_have_no_bias(mpi_results, codec, algorithm):
    """Errors of 60 sums cancel as independent errors do. Errors of rounding to nearest are the same in each sum."""
    for line in results(mpi_results, codec, algorithm, ":correlated"):
        assert line["bias"] == pytest.approx(1, abs=0.1)
    for line in results(mpi_results, codec, algorithm, ""):
        assert line["bias"] > 7


@pytest.mark.parametrize("fault", ["own_noise", "same_noise"])
def test_planted_fault_of_shared_noise_is_detected(mpi_results, fault):
    faulty = results(mpi_results, CODECS[0], "two-shot", ":correlated", fault)
    with pytest.raises(AssertionError):
        assert_less_error(faulty, results(mpi_results, CODECS[0], "two-shot", ":stochastic"), LESS["two-shot"])
