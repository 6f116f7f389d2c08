"""Tests that settings without context-parallel support, and schemes that differ between passes, are refused."""

import pytest

from hpcbench.contract.layout import Layout, find_model_misfit
from hpcbench.contract.rule import Rule
from hpcbench.contract.rules import explain_wrong_gradients, list_idle_rules
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import TrafficSettings, find_content, list_live_traffic
from hpcbench.contract.training import Model, Train

MODEL = Model(layers=2, hidden=48, heads=6, vocab=288)
TRAIN = Train(steps=20, global_batch=4, seq_len=48)
RANDOM = "int8:256:stochastic"


@pytest.mark.parametrize(
    ("layout", "train"),
    [
        ({"cp": 4}, {}),
        ({"cp": 8}, {}),
        ({"cp": 3, "tp": 2, "context": "ulysses"}, {"sequence_parallel": True}),
        ({"cp": 6, "context": "ulysses"}, {"optimizer": "onebit-adam", "zero": 0}),
        ({"cp": 4, "tp": 2, "context": "rsa"}, {"sequence_parallel": True}),
        ({"cp": 3, "tp": 4, "tensor": "2d", "context": "ulysses"}, {"micro_batch": 2}),
    ],
)
def test_what_divides_fits(layout, train):
    assert find_model_misfit(MODEL, TRAIN.changed(**train), Layout(**layout)) is None


@pytest.mark.parametrize(
    ("layout", "train", "field", "message"),
    [
        (
            {"cp": 5},
            {},
            "train.seq_len",
            "48 cannot be divided into layout.cp 5 equal parts of two pieces each: use 50",
        ),
        ({"cp": 8, "context": "rsa"}, {"seq_len": 24}, "train.seq_len", "use 32, or another layout.cp"),
        ({"cp": 2, "context": "ulysses"}, {"seq_len": 49}, "train.seq_len", "into layout.cp 2 equal parts: use 50"),
        ({"cp": 4, "context": "ulysses"}, {}, "layout.cp", "there are 6 heads: use one of 1, 2, 3, 6, or"),
        ({"cp": 2, "tp": 2, "context": "ulysses"}, {}, "layout.cp", "there are 3 heads: use one of 1, 3, or"),
        (
            {"cp": 2, "tp": 3},
            {"seq_len": 16, "sequence_parallel": True},
            "train.seq_len",
            "16 cannot be divided into layout.cp x tp = 2 x 3 equal parts of two pieces each: use 24",
        ),
        (
            {"cp": 4, "tp": 4, "tensor": "2d", "context": "ulysses"},
            {"micro_batch": 2},
            "layout.cp",
            "there are 3 heads",
        ),
    ],
)
def test_what_does_not_is_told_what_would(layout, train, field, message):
    misfit = find_model_misfit(MODEL, TRAIN.changed(**train), Layout(**layout))
    assert misfit is not None and ".".join(misfit.field) == field
    assert message in misfit.problem


def test_replicas_are_all_ranks_with_the_same_weights():
    layout = Layout(dp=2, cp=3, tp=2, pp=2)
    assert (layout.ranks, layout.replicas) == (24, 6)
    coordinates = [layout.coordinates(rank) for rank in range(24)]
    assert coordinates[:3] == [(0, 0, 0), (0, 0, 1), (0, 1, 0)] and coordinates[12] == (1, 0, 0)
    assert len(set(coordinates)) == 24 and {replica for _, replica, _ in coordinates} == set(range(6))


def setting(**changes):
    layout = {name: changes.pop(name) for name in ("cp", "context", "tp", "dp") if name in changes}
    return TrafficSettings(Layout(**{"cp": 2, **layout}), TRAIN.changed(**{"zero": 1, **changes}))


def test_attention_over_ranks_is_traffic_of_its_own():
    sent = list_live_traffic(setting())
    assert ("CP", "FORWARD", "ACT") in sent and ("CP", "BACKWARD", "GRAD") in sent
    assert ("DP", "BACKWARD", "GRAD") in sent and ("ZERO", "STEP", "PARAM") in sent, "they are replicas, too"
    assert not any(traffic[0] == "CP" for traffic in list_live_traffic(setting(cp=1)))
    assert {find_content(traffic) for traffic in sent if traffic[0] == "CP"} == {"activations"}
    scheme = Scheme(rules=[Rule(dimension="CP", codec="int8:256")])
    assert list_idle_rules(scheme, setting()) == []
    assert list_idle_rules(scheme, setting(cp=1)) == ["rule 1 (CP int8:256) applies to no message in this layout"]


@pytest.mark.parametrize(
    ("rule", "changes", "message"),
    [
        ({}, {}, "context ring sends keys and values again for the backward pass"),
        ({"phase": "FORWARD"}, {"context": "rsa"}, "context rsa sends keys and values again"),
        ({"phase": "BACKWARD"}, {}, None),
        ({}, {"context": "ulysses"}, None),
        ({}, {"context": "ulysses", "recompute": "selective"}, "recomputed attention differs from"),
        ({}, {"cp": 1}, None),
        ({"codec": "int8:256"}, {"recompute": "full"}, None),
    ],
)
def test_keys_that_would_differ_in_the_backward_pass_are_refused(rule, changes, message):
    scheme = Scheme(rules=[Rule(**{"dimension": "CP", "codec": RANDOM, **rule})])
    reason = explain_wrong_gradients(scheme, setting(**changes))
    assert reason is None if message is None else reason is not None and message in reason
