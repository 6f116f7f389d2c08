"""Tests of gradients with mixed widths."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("mixed_widths_worker.py")
GRADIENTS, NORMS = "DP BACKWARD GRAD", "EXACT BACKWARD GRAD"


@pytest.fixture(scope="module")
def reports(mpi_results):
    """Return the results of both ranks by test."""
    lines = mpi_results(2, WORKER, "training", "sums")
    return {name: [line for line in lines if line["test"] == name] for name in {line["test"] for line in lines}}


def test_message_bytes_equal_the_model_and_wire_bytes_fill_the_budget_at_each_zero_stage(reports):
    assert len(reports["training"]) == 8
    for zero in range(4):
        ranks = [result for result in reports["training"] if result["zero"] == zero]
        for name in (GRADIENTS, NORMS):
            sent = sum(result["mixed"][name][0] for result in ranks)
            assert sent == sum(result["predicted"][name] for result in ranks) > 0
        wire = sum(nbytes for result in ranks for _, nbytes in result["mixed"].values())
        assert 0.97 * ranks[0]["budget"] < wire <= ranks[0]["budget"]


def test_gradients_need_no_more_bytes_than_with_four_bits_for_all(reports):
    """Small pieces of untrained weights are the hard case: their super-groups have nearly the same norms."""
    for zero in range(4):
        ranks = [result for result in reports["training"] if result["zero"] == zero]
        mixed = sum(nbytes for result in ranks for _, nbytes in result["mixed"].values())
        assert mixed <= sum(result["uniform"][GRADIENTS][1] for result in ranks)
        assert all(0 < result["error"] < 1.5 for result in ranks)


def assert_sums_of_the_model(results):
    assert len(results) == 4
    for result in results:
        assert result["equal"], result
    digests = {result["digest"] for result in results if not result["scattered"]}
    assert len(digests) == 1, "replicas have the same sums, bit for bit"


def test_sums_equal_the_model_and_have_a_smaller_error_than_with_four_bits_for_all(reports):
    results = [result for result in reports["sums"] if result["fault"] is None]
    assert_sums_of_the_model(results)
    assert max(result["error"] for result in results) < 0.7


@pytest.mark.parametrize("fault", ["widths_of_own_gradients", "widths_reversed", "remainder_lost"])
@pytest.mark.parametrize("scattered", [False, True])
def test_planted_fault_is_detected(reports, fault, scattered):
    results = [result for result in reports["sums"] if result["fault"] == fault and result["scattered"] is scattered]
    assert len(results) == 2
    assert not all(result["equal"] for result in results)
    if fault == "widths_of_own_gradients" and not scattered:
        assert results[0]["digest"] != results[1]["digest"]


def test_a_nan_of_one_replica_reaches_all(reports):
    first, second = reports["overflow"]
    assert first["finite"] is second["finite"] is False
    assert first["digest"] == second["digest"]
