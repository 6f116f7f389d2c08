"""Tests of measured codec effects. The oracle is a run that really uses the codec in that step."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("effects_worker.py")


@pytest.fixture(scope="module")
def rows(mpi_results):
    return mpi_results(4, WORKER)


def list_wrong(rows, fault=None):
    """List the traffic whose measured effect differs from the real effect."""
    return {
        (row["case"], row["traffic"])
        for row in rows
        if row["fault"] == fault and row["measured"] != pytest.approx(row["expected"], rel=1e-4, abs=1e-9)
    }


def test_effects_equal_those_of_real_steps(rows):
    assert not list_wrong(rows)
    names = "DP BACKWARD GRAD", "ZERO STEP PARAM", "ZERO FORWARD PARAM", "EP FORWARD ACT", "PP BACKWARD GRAD"
    assert {row["traffic"] for row in rows} >= set(names)


def test_each_codec_changes_the_update(rows):
    """Otherwise, the comparison would only compare zeros. Only forward traffic changes the loss of the step."""
    for row in (row for row in rows if row["fault"] is None):
        loss, update, descent = row["expected"]
        assert update > 1e-4 and descent != 0, row
        assert (loss != 0) == ("BACKWARD" not in row["traffic"]), row


def test_the_run_continues_as_without_the_measurement(rows):
    assert all(row["unchanged"] for row in rows if row["fault"] is None)


@pytest.mark.parametrize(
    ("fault", "case", "traffic"),
    [
        ("swapped_channels", "tensor", "TP FORWARD ACT"),
        ("weights_not_sent_again", "tensor", "ZERO STEP PARAM"),
        ("counted_twice", "experts", "DP BACKWARD GRAD"),
    ],
)
def test_planted_faults_are_detected(rows, fault, case, traffic):
    assert (case, traffic) in list_wrong(rows, fault)
