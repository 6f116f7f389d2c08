"""Tests of schemes that change gradients: rules with steps, low-rank sums, and averaged errors."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("gradient_schemes_worker.py")
PARTS = ("steps", "forgotten", "low_rank", "low_rank_sums", "averaged", "averaged_sums")
GRADIENTS, GATHERS = "DP BACKWARD GRAD", "ZERO STEP PARAM"


@pytest.fixture(scope="module")
def reports(mpi_results):
    """Return the results of both ranks by test."""
    lines = mpi_results(2, WORKER, *PARTS)
    return {name: [line for line in lines if line["test"] == name] for name in {line["test"] for line in lines}}


def test_each_step_has_the_bytes_of_the_rule_that_covers_the_step(reports):
    """In every step, engine, counters and prediction agree exactly, and the codec is that of the step's rule."""
    assert len(reports["steps"]) == 2
    for result in reports["steps"]:
        for step, sent in enumerate(result["scheduled"], start=1):
            expected = {
                GRADIENTS: result["encoded" if step in (2, 3) else "plain"][step - 1][GRADIENTS],
                GATHERS: result["encoded" if step >= 3 else "plain"][step - 1][GATHERS],
            }
            assert sent == expected, step
            assert {name: message for name, (message, _) in sent.items()} == result["predicted"][step - 1]
        assert result["encoded"][0][GRADIENTS][1] < result["plain"][0][GRADIENTS][1] / 3


def test_the_log_has_an_entry_for_each_codec_of_a_channel(reports):
    for result in reports["steps"][:1]:
        rows = {(dimension, codec): counted for dimension, codec, *counted in result["rows"]}
        assert rows.keys() == {("DP", "none"), ("DP", "int8:256"), ("ZERO", "none"), ("ZERO", "int8:64")}
        of_both = zip(*(each["scheduled"] for each in reports["steps"]), strict=True)
        gradients = [[sum(sent[GRADIENTS][k] for sent in step) for k in range(2)] for step in of_both]
        assert rows["DP", "none"] == [a + b for a, b in zip(gradients[0], gradients[3], strict=True)]
        assert rows["DP", "int8:256"] == [a + b for a, b in zip(gradients[1], gradients[2], strict=True)]


def test_rules_with_all_steps_change_no_bit_and_steps_before_a_rule_are_uncompressed(reports):
    for result in reports["steps"]:
        assert result["always"] is True
        assert result["first_step"] == [True, False]


def test_residuals_end_with_the_steps_of_their_rule(reports):
    for result in reports["forgotten"]:
        first, second, third = result["sizes"]
        assert first > 0 and second > 0 and third == 0


# ---------------------------------------------------------------- low rank


def test_low_rank_gradients_have_the_bytes_of_their_factors_from_the_first_step_of_their_rule(reports):
    assert len(reports["low_rank"]) == 4
    for result in reports["low_rank"]:
        for sent, predicted in zip(result["sent"], result["predicted"], strict=True):
            assert {name: message for name, (message, _) in sent.items()} == predicted
            assert all(message == wire for message, wire in sent.values())
        uncompressed, factors = (result["sent"][step][GRADIENTS][0] for step in (0, 1))
        assert factors < uncompressed / 2
        held, expected = result["residuals"]
        assert held == expected, "the memory model counts the residuals"
        assert result["factors"] > 0


def assert_sums_as_pytorch(results):
    for result in results:
        assert max(result["errors"]) < 1e-4, "PyTorch's hook has the same sums"
        assert result["telescoped"] < 1e-5, "sums and errors add up to the gradients"
        assert min(result["sizes"]) > 0
    assert results[0]["digests"] == results[1]["digests"], "replicas have the same sums, bit for bit"


def test_low_rank_sums_equal_those_of_pytorch_and_lose_no_gradient(reports):
    assert_sums_as_pytorch([result for result in reports["low_rank_sums"] if result["fault"] is None])


def test_the_error_of_a_codec_for_the_factors_is_fed_back(reports):
    first, second = reports["low_rank_coded"]
    assert first["digests"] == second["digests"]
    for result in (first, second):
        message, wire = result["wire"]
        assert wire < message / 2 and max(result["errors"]) > 1e-4
        assert result["telescoped"] < 0.05, "only the vectors have errors that no step corrects"


@pytest.mark.parametrize("fault", ["error_of_the_sum", "error_not_added", "cold_start", "first_factor_not_summed"])
def test_planted_fault_is_detected(reports, fault):
    results = [result for result in reports["low_rank_sums"] if result["fault"] == fault]
    assert len(results) == 2
    with pytest.raises(AssertionError):
        assert_sums_as_pytorch(results)


def test_an_overflow_of_one_replica_reaches_all(reports):
    for result in reports["overflow"]:
        assert result["finite"] is False and result["factors"] == 0


def test_the_iteration_recovers_from_a_step_without_gradients(reports):
    """In contrast, PyTorch's hook returns NaN after a step without gradients."""
    assert len(reports["low_rank_after_zeros"]) == 2
    for result in reports["low_rank_after_zeros"]:
        assert result["telescoped"] < 1e-5 and min(result["sizes"]) > 1


# ---------------------------------------------------------------- averaged errors


def test_the_engine_averages_errors_and_sets_them_to_zero(reports):
    """In the first step, residuals are 0.2 times the residuals of plain feedback.

    A reset after two updates changes the residuals of step 3.
    """
    assert len(reports["averaged"]) == 8, "two ranks, four ZeRO stages"
    for result in reports["averaged"]:
        plain, averaged, reset = result["sizes"]
        assert averaged[0] == pytest.approx(0.2 * plain[0], rel=1e-5)
        assert averaged[1] != pytest.approx(0.2 * plain[1], rel=1e-2)
        assert reset[:2] == averaged[:2] and reset[2] < averaged[2]


def assert_telescopes(results):
    assert len(results) == 2
    for result in results:
        assert result["telescoped"] < 1e-5


def test_sums_with_averaged_errors_lose_no_gradient(reports):
    """Sums telescope: all sums and the last residuals / (1 - average) add up to all gradients."""
    assert_telescopes([result for result in reports["averaged_sums"] if result["fault"] is None])


@pytest.mark.parametrize("fault", ["errors_not_averaged", "weights_exchanged"])
def test_planted_fault_of_averages_is_detected(reports, fault):
    with pytest.raises(AssertionError):
        assert_telescopes([result for result in reports["averaged_sums"] if result["fault"] == fault])
