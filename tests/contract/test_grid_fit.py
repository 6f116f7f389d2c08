"""Tests that settings that do not fit a tensor grid are refused: one line names the field and a valid value."""

import pytest

from hpcbench.contract.grid import make_grid
from hpcbench.contract.grid_fit import describe_placement, find_grid_misfit
from hpcbench.contract.layout import Layout, find_batch_misfit
from hpcbench.contract.rule import Rule
from hpcbench.contract.rules import explain_wrong_gradients
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import TrafficSettings, find_content, list_live_traffic
from hpcbench.contract.training import Model, Train

MODEL = Model(layers=2, hidden=36, heads=6, vocab=288)
TRAIN = Train(steps=20, global_batch=36, micro_batch=36, eval_samples=36)


@pytest.mark.parametrize(
    ("mode", "tp", "depth"), [("1d", 6, 1), ("2d", 4, 1), ("2d", 9, 1), ("2.5d", 8, 2), ("2.5d", 27, 3), ("3d", 27, 1)]
)
def test_what_divides_fits(mode, tp, depth):
    assert find_grid_misfit(MODEL, TRAIN, mode, tp, depth) is None


@pytest.mark.parametrize(
    ("mode", "tp", "depth", "model", "train", "field", "message"),
    [
        ("2d", 8, 1, {}, {}, "layout.tp", "8 ranks do not form a grid of q x q: use 4 or 9, or tensor 1d"),
        ("3d", 16, 1, {}, {}, "layout.tp", "use 8 or 27"),
        ("2.5d", 12, 2, {}, {}, "layout.tp", "12 ranks do not form a grid of 2 x q x q: use 8 or 18"),
        ("2d", 4, 2, {}, {}, "layout.depth", "2, but tensor 2d has no depth: use 1, or tensor 2.5d"),
        ("2d", 4, 1, {"heads": 3}, {}, "model.heads", "3 cannot be divided into 2 pieces of whole heads"),
        ("3d", 27, 1, {"hidden": 30}, {}, "model.hidden", "30 cannot be divided into 9 equal pieces.*use 36"),
        ("3d", 8, 1, {"vocab": 258}, {}, "model.vocab", "258 cannot be divided into 4 equal pieces.*use 260"),
        ("3d", 8, 1, {}, {"micro_batch": 6}, "train.micro_batch", "6 cannot be divided into 4 pieces of whole samples"),
        ("2.5d", 8, 2, {}, {"micro_batch": 2}, "train.micro_batch", "use 4, or another layout.tensor"),
        (
            "2d",
            4,
            1,
            {},
            {"sequence_parallel": True},
            "train.sequence_parallel",
            "set sequence_parallel to false, or use tensor 1d",
        ),
        ("3d", 8, 1, {}, {"optimizer": "onebit-adam"}, "train.optimizer", "use adamw, or tensor 1d"),
    ],
)
def test_what_does_not_is_told_what_would(mode, tp, depth, model, train, field, message):
    misfit = find_grid_misfit(MODEL.changed(**model), TRAIN.changed(**train), mode, tp, depth)
    assert misfit is not None and ".".join(misfit.field) == field
    with pytest.raises(ValueError, match=message):
        raise ValueError(misfit.problem)


def test_an_evaluation_is_shared_out_evenly():
    misfit = find_batch_misfit(TRAIN.changed(eval_samples=30), Layout(tp=8, tensor="3d"))
    assert str(misfit) == "train.eval_samples: 30 is not a multiple of dp x the grid's rows = 1 x 4: use 32"
    assert find_batch_misfit(TRAIN.changed(eval_samples=30), Layout(tp=6)) is None


@pytest.mark.parametrize(
    ("mode", "tp", "depth", "per_node", "message"),
    [
        ("3d", 8, 1, 4, "tensor grid 3d: i 2 x k 2 x j 2: lines along k, j share a node; lines along i cross nodes"),
        ("2d", 16, 1, 4, "tensor grid 2d: i 4 x j 4: lines along j share a node; lines along i cross nodes"),
        ("2.5d", 8, 2, 8, "tensor grid 2.5d: e 2 x i 2 x j 2: lines along e, i, j share a node"),
        ("2d", 4, 1, 1, "tensor grid 2d: i 2 x j 2: lines along i, j cross nodes"),
    ],
)
def test_a_dry_run_says_which_lines_share_a_node(mode, tp, depth, per_node, message):
    assert describe_placement(make_grid(mode, tp, depth), per_node) == message


def test_a_rule_may_name_an_axis_and_then_matches_nothing_else():
    setting = TrafficSettings(Layout(tp=8, tensor="3d"), TRAIN)
    rule = Rule(dimension="TP", axis="k", codec="int8")
    assert [traffic for traffic in list_live_traffic(setting) if rule.matches(traffic)] == [
        ("TP", "FORWARD", "ACT", "k"),
        ("TP", "BACKWARD", "GRAD", "k"),
    ]
    rule_of_all_axes = Rule(dimension="TP", codec="int8")
    assert all(rule_of_all_axes.matches(traffic) for traffic in list_live_traffic(setting))
    assert not rule.matches(("TP", "FORWARD", "ACT"))
    with pytest.raises(ValueError, match=r"no run has such traffic: .*TP FORWARD PARAM i"):
        Rule(kind="ACT", axis="i", codec="int8")


def test_messages_of_weights_have_the_format_of_weights():
    axes = {
        traffic[1:]: find_content(traffic)
        for traffic in list_live_traffic(TrafficSettings(Layout(tp=8, tensor="2.5d", depth=2), TRAIN))
    }
    assert axes == {
        ("BACKWARD", "GRAD", "e"): "gradients",
        ("FORWARD", "PARAM", "i"): "parameters",
        ("BACKWARD", "GRAD", "i"): "gradients",
        ("FORWARD", "ACT", "j"): "activations",
        ("BACKWARD", "GRAD", "j"): "activations",
    }


@pytest.mark.parametrize(
    ("mode", "recompute", "wrong"), [("2d", "none", True), ("3d", "none", False), ("3d", "full", True)]
)
def test_what_is_sent_twice_may_not_be_rounded_at_random(mode, recompute, wrong):
    layout = Layout(tp=4 if mode == "2d" else 8, tensor=mode)
    scheme = Scheme(rules=[Rule(dimension="TP", kind="ACT", codec="int8:256:stochastic")])
    reason = explain_wrong_gradients(scheme, TrafficSettings(layout, TRAIN.changed(recompute=recompute)))
    assert bool(reason) == wrong
