"""What does not go with gradients by rows is refused by name, or leaves the gradient whole."""

import pytest

from hpcbench.contract.layout import Layout, model_misfit
from hpcbench.contract.sparse_fit import by_rows, sparse_misfit, whole_after_all, whole_because
from hpcbench.contract.training import Model, Train

MODEL = Model(layers=2, hidden=32, heads=4)
TRAIN = Train(steps=20, global_batch=8, seq_len=8)

UNFIT = [
    ({"tied": True}, {}, "1d", "model.tied: the head gives every row of the shared weight a gradient: set it to false"),
    ({}, {}, "2d", "layout.tensor: 2d cuts the embedding's rows, too: use 1d"),
    ({}, {"optimizer": "onebit-adam"}, "1d", "train.optimizer: 1-bit Adam averages momenta"),
    ({}, {"sync": "ssp"}, "1d", "train.sync: ssp sends gradients to a server"),
    ({}, {"schedule": "pipedream"}, "1d", "train.schedule: pipedream has not been built for gradients by rows"),
    ({}, {"schedule": "pipedream-2bw"}, "1d", "train.schedule: pipedream-2bw has not been built"),
]


@pytest.mark.parametrize(("model", "train", "tensor", "words"), UNFIT)
def test_always_is_refused_and_auto_sends_the_whole(model, train, tensor, words):
    model, train = MODEL.changed(**model), TRAIN.changed(**train)
    said = {way: train.changed(sparse_gradients=way) for way in ("never", "auto", "measured", "always")}
    found = str(sparse_misfit(model, said["always"], tensor))
    assert found.startswith(words) and found.endswith(", or train.sparse_gradients to auto or never")
    for way, settings in said.items():
        assert str(whole_because(model, settings, tensor)).startswith(words)
        assert not by_rows(model, settings, tensor)
        assert way == "always" or sparse_misfit(model, settings, tensor) is None
        assert (whole_after_all(model, settings, tensor) is not None) == (way in ("auto", "measured"))


def test_a_run_that_cannot_is_refused():
    train = TRAIN.changed(sparse_gradients="always")
    assert model_misfit(MODEL, train, Layout(dp=2, tp=2)) is None
    assert "model.tied" in str(model_misfit(MODEL.changed(tied=True), train, Layout(dp=2)))
    assert "layout.tensor" in str(model_misfit(MODEL, train, Layout(tp=4, tensor="2d")))


def test_it_is_not_done_unasked():
    assert not by_rows(MODEL, TRAIN, "1d")
    assert all(by_rows(MODEL, TRAIN.changed(sparse_gradients=way), "1d") for way in ("auto", "measured", "always"))
