"""Tests that a run resumed from a checkpoint is bitwise identical to an uninterrupted run."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("checkpoint_worker.py")
CASES = [
    "dp2-fp64-zero0",
    "dp2-fp16-zero1-overflow",
    "dp2-fp32-zero0-feedback",
    "dp2-fp32-zero1-feedback",
    "dp2-fp32-zero1-feedback-steps",
    "dp2-fp32-zero1-feedback-averaged",
    "dp2-tp2-fp32-zero1-feedback-low-rank",
    "dp2-tp2-fp32-zero1-stochastic",
    "dp2-tp2-bf16-zero1-feedback",
    "dp2-tp2-bf16-zero1-differences",
    "dp2-fp32-zero2-differences",
    "dp2-tp2-fp32-zero0-onebit",
    "pp2-fp64-zero1-tied",
    "pp2-fp32-zero1-lazy-feedback",
    "pp2-fp32-zero1-lazy-changes",
    "pp2-fp16-zero0-lazy-feedback-overflow",
    "pp2-fp16-zero0-overflow",
]


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Return one name per session, so that `mpi_results` runs a worker only once."""
    return str(tmp_path_factory.mktemp("checkpoints"))


def assert_exact(result):
    assert result["states"] == ["completed", "stopped", "completed"]
    assert result["steps"] == [5, 2, 5]
    assert result["reloaded"] == []
    assert result["weights"] == [], "bits of the state differ"
    assert result["parts"] == result["whole"]
    assert len(result["whole"]) == 5 + 3, "five steps and three evaluations"


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(mpi_results, place, case):
    results = [r for r in mpi_results(4, WORKER, "exact", place + "/exact") if r["case"] == case]
    assert len(results) == (4 if "dp2-tp2" in case else 2)
    for result in results:
        assert_exact(result)
        if "overflow" in case:
            assert 0 < result["skipped"] < 5, "the loss scale was never used"
        if ("feedback" in case or "onebit" in case) and "lazy" not in case:
            assert result["residual"] > 0
    if "lazy" in case:
        assert max(result["residual"] for result in results) > 0


@pytest.mark.parametrize(
    "fault",
    [
        "residuals_lost",
        "moments_lost",
        "updates_lost",
        "loss_scale_lost",
        "seeds_lost",
        "masters_rounded",
        "padding_kept",
        "factors_lost",
        "boundary_errors_lost",
        "activations_lost",
        "steps_counted_from_the_restart",
    ],
)
def test_planted_fault_is_detected(mpi_results, place, fault):
    results = [r for r in mpi_results(4, WORKER, "faults", place + "/faults") if r["fault"] == fault]
    assert len(results) >= 2
    assert any(result["weights"] for result in results)
    with pytest.raises(AssertionError):
        for result in results:
            assert_exact(result)
