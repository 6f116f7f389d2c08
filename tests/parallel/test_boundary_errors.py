"""Tests of lazy error propagation between pipeline stages, compared with a plain model of the recursion."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("boundary_errors_worker.py")
SENDERS = {"1f1b": 1, "gpipe": 1, "interleaved": 2, "pipedream": 1, "fp16": 1}


def named(mpi_results, case, fault=None):
    lines = [line for line in mpi_results(2, WORKER) if (line["case"], line["fault"]) == (case, fault)]
    assert len(lines) == SENDERS[case]
    return lines


def assert_follows_the_recursion(lines):
    """Require equal bits in fp32. In fp16, decoded values are rounded, so only sums are compared."""
    for line in lines:
        if line["case"] == "fp16":
            assert line["scales"] > 1 and line["telescoped"] < 2e-4
        else:
            assert line["wrong"] == 0 and line["telescoped"] < 1e-7


@pytest.mark.parametrize("case", SENDERS)
def test_each_gradient_contains_the_error_of_the_previous_one(mpi_results, case):
    assert_follows_the_recursion(named(mpi_results, case))


@pytest.mark.parametrize("case", SENDERS)
def test_counters_and_memory_are_those_of_the_formula(mpi_results, case):
    for line in named(mpi_results, case):
        assert line["counted"] == [line["predicted"], line["coded"]]
        assert line["held"] == 4 * line["elements"] * line["boundaries"]


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        ("error_added_twice", "1f1b"),
        ("one_error_for_all_boundaries", "interleaved"),
        ("error_lost_between_steps", "1f1b"),
        ("error_not_scaled", "fp16"),
    ],
)
def test_planted_fault_is_detected(mpi_results, fault, case):
    with pytest.raises(AssertionError):
        assert_follows_the_recursion(named(mpi_results, case, fault))
