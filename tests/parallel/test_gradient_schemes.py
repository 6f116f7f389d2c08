"""Tests of schemes that change gradients: rules with steps."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("gradient_schemes_worker.py")
PARTS = ("steps", "forgotten")
GRADIENTS, GATHERS = "DP BACKWARD GRAD", "ZERO STEP PARAM"


@pytest.fixture(scope="module")
def reports(mpi_results):
    """Return the results of both ranks by test."""
    lines = mpi_results(2, WORKER, *PARTS)
    return {name: [line for line in lines if line["test"] == name] for name in {line["test"] for line in lines}}


def test_each_step_has_the_bytes_of_the_rule_that_covers_the_step(reports):
    """Engine, counters and model agree as integers in every step, and a step's codec is the rule's."""
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
