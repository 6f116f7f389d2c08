"""Tests of measured codec effects. The oracle is a run that really uses the codec in that step."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from hpcbench.contract.training import Model, Train, find_optimizer_misfit
from hpcbench.features.effects.rules import find_effects_misfit
from hpcbench.features.effects.settings import CodecEffects

WORKER = Path(__file__).with_name("effects_worker.py")
CASES = {
    "tensor": ("swapped_channels", "weights_not_sent_again"),
    "pipeline": (),
    "experts": ("counted_twice",),
}
TRAFFIC = {
    "tensor": {"DP BACKWARD GRAD", "ZERO STEP PARAM", "TP FORWARD ACT", "TP BACKWARD GRAD"},
    "pipeline": {"ZERO FORWARD PARAM", "ZERO BACKWARD PARAM", "PP FORWARD ACT", "PP BACKWARD GRAD"},
    "experts": {"DP BACKWARD GRAD", "EP FORWARD ACT", "EP BACKWARD GRAD"},
}
SETTINGS = CodecEffects(steps=[2], codecs=["int8:256"])


@pytest.fixture(
    scope="module",
    params=["tensor", *(pytest.param(case, marks=pytest.mark.long) for case in CASES if case != "tensor")],
)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def rows(case, mpi_results):
    return mpi_results(4, WORKER, case, *CASES[case])


def list_wrong(rows, fault=None):
    """List the traffic whose measured effect differs from the real effect."""
    return {
        row["traffic"]
        for row in rows
        if "traffic" in row
        and row["fault"] == fault
        and row["measured"] != pytest.approx(row["expected"], rel=1e-4, abs=1e-9)
    }


def test_effects_equal_those_of_real_steps(rows, case):
    assert not list_wrong(rows)
    assert {row["traffic"] for row in rows if "traffic" in row} >= TRAFFIC[case]


def test_each_codec_changes_the_update(rows):
    """If the effects were zero, the comparison would only compare zeros.

    Only forward traffic changes the loss of the step.
    """
    for row in (row for row in rows if row.get("fault", "") is None):
        loss, update, descent = row["expected"]
        assert update > 1e-4 and descent != 0, row
        assert (loss != 0) == ("BACKWARD" not in row["traffic"]), row


def test_the_run_continues_as_without_the_measurement(rows):
    assert all(row["unchanged"] for row in rows if "traffic" in row)


def test_planted_faults_are_detected(rows, case):
    wrong = {fault: list_wrong(rows, fault) for fault in CASES[case]}
    assert all(wrong.values()), wrong
    if case == "tensor":
        assert wrong["swapped_channels"] == {"TP FORWARD ACT", "TP BACKWARD GRAD"}
        assert wrong["weights_not_sent_again"] == {"ZERO STEP PARAM"}


def test_schemes_whose_messages_depend_on_earlier_ones_are_refused(rows):
    refused = {row["dependent"]: row["refused"] for row in rows if "refused" in row}
    assert len(refused) == 3
    for message in refused.values():
        assert message.startswith("train.codec_effects: messages of scheme scheme depend on earlier messages")


def test_settings_are_checked():
    train = Train(steps=10, warmup_steps=2, global_batch=8, codec_effects=SETTINGS)
    assert train.codec_effects.codecs == ["int8:256"] == CodecEffects(steps=[1], codecs=["int8"] * 2).codecs
    with pytest.raises(ValidationError, match=r"codec_effects.steps ends with step 2, which no step follows"):
        Train(steps=2, warmup_steps=1, global_batch=8, codec_effects=SETTINGS)
    with pytest.raises(ValidationError, match=r"must be different and in ascending order"):
        CodecEffects(steps=[4, 2], codecs=["int8"])
    with pytest.raises(ValidationError, match="int9"):
        CodecEffects(steps=[2], codecs=["int9"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({}, None),
        ({"sync": "asp"}, "sync"),
        ({"schedule": "pipedream-2bw"}, "schedule"),
        ({"sparse_gradients": "auto"}, "sparse_gradients"),
    ],
)
def test_steps_that_cannot_be_repeated_are_refused(change, field):
    train = Train(steps=10, warmup_steps=2, global_batch=8, codec_effects=SETTINGS, **change)
    misfit = find_effects_misfit(Model(layers=2, hidden=32, heads=2), train, 1, "1d")
    assert (misfit and misfit.field) == (field and ("train", field))


def test_1_bit_adam_is_refused():
    train = Train(
        steps=10, warmup_steps=2, global_batch=8, codec_effects=SETTINGS, optimizer="onebit-adam", zero=0, clip=0
    )
    assert find_optimizer_misfit(train).field == ("train", "codec_effects")
