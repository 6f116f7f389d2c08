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


def test_bytes_equal_the_model_at_each_zero_stage(reports):
    assert len(reports["training"]) == 8
    for zero in range(4):
        ranks = [result for result in reports["training"] if result["zero"] == zero]
        for result in ranks:
            assert {name: message for name, (message, _) in result["mixed"].items()} == result["predicted"]
        wire = sum(nbytes for result in ranks for _, nbytes in result["mixed"].values())
        assert wire == ranks[0]["wire"]


def test_real_gradients_have_a_smaller_error_than_with_four_bits_for_all_and_need_no_more_bytes(reports):
    for result in reports["training"]:
        mixed, uniform = result["errors"]
        assert 0 < mixed < 0.9 * uniform
    for zero in range(4):
        ranks = [result for result in reports["training"] if result["zero"] == zero]
        mixed = sum(nbytes for result in ranks for _, nbytes in result["mixed"].values())
        assert mixed <= sum(result["uniform"][GRADIENTS][1] for result in ranks)


def assert_sums_of_the_model(results):
    assert len(results) == 4
    for result in results:
        assert result["equal"], result
    whole = [result for result in results if not result["scattered"]]
    assert whole[0]["digest"] == whole[1]["digest"], "replicas have the same sums, bit for bit"


def test_sums_equal_the_model(reports):
    assert_sums_of_the_model([result for result in reports["sums"] if result["fault"] is None])


@pytest.mark.parametrize("fault", ["widths_of_own_norms", "widths_reversed", "remainder_lost"])
@pytest.mark.parametrize("scattered", [False, True])
def test_planted_fault_is_detected(reports, fault, scattered):
    results = [result for result in reports["sums"] if result["fault"] == fault and result["scattered"] is scattered]
    assert len(results) == 2
    with pytest.raises(AssertionError):
        assert_sums_of_the_model(results * 2)


def test_a_nan_of_one_replica_reaches_all(reports):
    first, second = reports["overflow"]
    assert first["finite"] is second["finite"] is False
    assert first["digest"] == second["digest"]
