"""Tests that settings incompatible with sparse weights give a one-line error with the field and a remedy."""

import pytest
from pydantic import ValidationError

from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout, find_model_misfit
from hpcbench.contract.training import Model, Train, find_optimizer_misfit
from hpcbench.features.prune.rules import resolve_pruning
from hpcbench.features.prune.settings import Prune

MODEL = Model(layers=4, hidden=32, heads=4)
TRAIN = Train(steps=20, warmup_steps=3, global_batch=24, prune="2:4")


def test_a_pattern_alone_begins_after_the_warm_up():
    assert resolve_pruning(TRAIN) == Prune(pattern="2:4", begin=3)
    assert resolve_pruning(TRAIN.changed(warmup_steps=0)) == Prune(pattern="2:4", begin=1)
    assert resolve_pruning(Train(steps=20, global_batch=24, prune="none")) is None
    assert resolve_pruning(Train.model_validate(TRAIN.model_dump())) == resolve_pruning(TRAIN)


@pytest.mark.parametrize("layout", [Layout(), Layout(dp=8, tp=2, pp=2), Layout(dp=2, cp=2), Layout(tp=4)])
@pytest.mark.parametrize("pattern", ["2:4", "unstructured", "rows", "heads"])
def test_a_divisible_model_fits(layout, pattern):
    assert find_model_misfit(MODEL, TRAIN.changed(prune=pattern, seq_len=64), layout) is None


@pytest.mark.parametrize(
    ("model", "train", "layout", "field", "message"),
    [
        (
            {},
            {"micro_batch": 4},
            {"tp": 4, "tensor": "2d"},
            "layout.tensor",
            "tensor grids: use 1d, or leave train.prune out",
        ),
        ({"experts": Experts(count=4)}, {}, {}, "model.experts", "experts: use a model without"),
        ({}, {"schedule": "pipedream", "clip": 0.0}, {"pp": 2}, "train.schedule", "pipedream: use 1f1b"),
        ({}, {"sync": "asp", "clip": 0.0}, {"dp": 2}, "train.sync", "sync asp: use all-reduce"),
        ({}, {"zero": 3, "node_copy": True}, {"dp": 2}, "train.node_copy", "set node_copy to false"),
        (
            {},
            {"sparse_gradients": "auto"},
            {"dp": 2},
            "train.sparse_gradients",
            "sent as rows: set sparse_gradients to never",
        ),
        ({"hidden": 40}, {}, {"tp": 4}, "train.prune", "not a multiple of 4 x layout.tp = 16: use another pattern"),
        (
            {},
            {"prune": Prune(pattern="heads", sparsity=0.1)},
            {},
            "train.prune",
            "0.1 makes 0 of 4 heads zero: use a value",
        ),
    ],
)
def test_a_misfit_names_the_field_and_a_remedy(model, train, layout, field, message):
    train = TRAIN.changed(**{"global_batch": 24, "eval_samples": 24, **train})
    misfit = find_model_misfit(MODEL.changed(**model), train, Layout(**layout))
    assert misfit is not None and ".".join(misfit.field) == field
    assert message in misfit.problem and "\n" not in misfit.problem


def test_one_bit_adam_does_not_fit():
    misfit = find_optimizer_misfit(TRAIN.changed(optimizer="onebit-adam", zero=0, freeze_step=5))
    assert str(misfit).startswith("train.prune: 1-bit Adam averages momenta of all weights: leave prune out")


@pytest.mark.parametrize(
    ("prune", "message"),
    [
        ({"pattern": "2:4", "sparsity": 0.75}, "exactly half"),
        ({"pattern": "2:4", "end": 9}, "leave out sparsity, end and every"),
        ({"pattern": "rows", "begin": 9, "end": 8}, "end 8 is before begin 9: raise end"),
        ({"pattern": "rows", "end": 2}, "prune.end 2 is before prune.begin 3: raise prune.end"),
        ({"pattern": "rows", "every": 2}, "set end, or leave every out"),
        (
            {"pattern": "rows", "begin": 21},
            "after 21 updates, but there are only 20 steps: lower prune.begin or prune.end",
        ),
        ("columns", "Input should be"),
    ],
)
def test_an_impossible_schedule_is_refused(prune, message):
    with pytest.raises(ValidationError, match=message):
        Train(steps=20, warmup_steps=3, global_batch=24, prune=prune)
