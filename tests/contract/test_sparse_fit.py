"""Tests of settings that do not fit row-sparse gradients: they are refused, or the whole gradient is sent."""

import pytest

from hpcbench.contract.layout import Layout, find_model_misfit
from hpcbench.contract.sparse_fit import find_row_obstacle, find_sparse_misfit, find_unused_rows, may_send_rows
from hpcbench.contract.training import Model, Train

MODEL = Model(layers=2, hidden=32, heads=4)
TRAIN = Train(steps=20, global_batch=8, seq_len=8)

UNFIT = [
    (
        {"tied": True},
        {},
        "1d",
        "model.tied: the head gives every row of the shared weight a gradient: set tied to false",
    ),
    ({}, {}, "2d", "layout.tensor: 2d splits the rows of the embedding: use 1d"),
    ({}, {"optimizer": "onebit-adam"}, "1d", "train.optimizer: 1-bit Adam averages momenta"),
    ({}, {"sync": "ssp"}, "1d", "train.sync: ssp sends gradients to a server"),
    ({}, {"schedule": "pipedream"}, "1d", "train.schedule: pipedream does not support sending gradients as rows"),
    ({}, {"schedule": "pipedream-2bw"}, "1d", "train.schedule: pipedream-2bw does not support"),
]


@pytest.mark.parametrize(("model", "train", "tensor", "message"), UNFIT)
def test_always_is_refused_and_auto_sends_the_whole(model, train, tensor, message):
    model, train = MODEL.changed(**model), TRAIN.changed(**train)
    by_setting = {way: train.changed(sparse_gradients=way) for way in ("never", "auto", "measured", "always")}
    misfit = str(find_sparse_misfit(model, by_setting["always"], tensor))
    assert misfit.startswith(message) and misfit.endswith(", or set train.sparse_gradients to auto or never")
    for way, settings in by_setting.items():
        assert str(find_row_obstacle(model, settings, tensor)).startswith(message)
        assert not may_send_rows(model, settings, tensor)
        assert way == "always" or find_sparse_misfit(model, settings, tensor) is None
        assert (find_unused_rows(model, settings, tensor) is not None) == (way in ("auto", "measured"))


def test_a_run_that_cannot_is_refused():
    train = TRAIN.changed(sparse_gradients="always")
    assert find_model_misfit(MODEL, train, Layout(dp=2, tp=2)) is None
    assert "model.tied" in str(find_model_misfit(MODEL.changed(tied=True), train, Layout(dp=2)))
    assert "layout.tensor" in str(find_model_misfit(MODEL, train, Layout(tp=4, tensor="2d")))


def test_it_is_not_done_unasked():
    assert not may_send_rows(MODEL, TRAIN, "1d")
    assert all(
        may_send_rows(MODEL, TRAIN.changed(sparse_gradients=way), "1d") for way in ("auto", "measured", "always")
    )
