"""Tests that settings that do not fit experts are refused: one line names the field and a valid value."""

import pytest

from hpcbench.contract.expert_fit import describe_expert_placement, find_expert_misfit
from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout, find_batch_misfit, find_model_misfit
from hpcbench.contract.rule import Rule
from hpcbench.contract.rules import explain_wrong_gradients
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import TrafficSettings, find_content, list_live_traffic
from hpcbench.contract.training import Model, Train

MODEL = Model(layers=4, hidden=32, heads=4, experts=Experts(count=8, top=2, every=2))
TRAIN = Train(steps=20, global_batch=24)


@pytest.mark.parametrize(
    "layout", [Layout(), Layout(dp=4, ep=4), Layout(dp=8, ep=2, tp=2, pp=2), Layout(dp=2, ep=2, pp=4)]
)
def test_what_divides_fits(layout):
    assert find_model_misfit(MODEL, TRAIN, layout) is None
    assert find_batch_misfit(TRAIN, layout) is None


@pytest.mark.parametrize(
    ("experts", "layout", "train", "field", "message"),
    [
        (None, {"dp": 2, "ep": 2}, {}, "layout.ep", "2, but the model has no experts: use 1, or set"),
        ({"every": 5}, {}, {}, "model.experts", "every 5 is more than model.layers 4"),
        ({}, {"dp": 3, "ep": 3}, {}, "layout.ep", "3 does not divide model.experts.count 8: use one of 1, 2, 4, 8"),
        *(
            ({"drop": drop}, {"dp": 2, "cp": 2}, {}, "layout.cp", "set model.experts.drop to none, or cp to 1")
            for drop in ("position", "probability")
        ),
        ({}, {"tp": 4, "tensor": "2d"}, {}, "layout.tensor", "2d does not support experts: use 1d"),
        (
            {},
            {"tp": 2},
            {"sequence_parallel": True, "seq_len": 8},
            "train.sequence_parallel",
            "set sequence_parallel to false, or use",
        ),
        ({}, {}, {"optimizer": "onebit-adam"}, "train.optimizer", "use adamw, or a model without experts"),
        (
            {},
            {"dp": 4, "ep": 2},
            {"zero": 3, "node_copy": True},
            "train.node_copy",
            "set node_copy to false, or layout.ep to 1",
        ),
    ],
)
def test_what_does_not_is_told_what_would(experts, layout, train, field, message):
    model = MODEL.changed(experts=None if experts is None else MODEL.experts.changed(**experts))
    cut = Layout(**layout)
    misfit = find_expert_misfit(model, TRAIN.changed(**train), ep=cut.ep, tensor=cut.tensor, cp=cut.cp)
    assert misfit is not None and ".".join(misfit.field) == field
    assert message in misfit.problem and "\n" not in misfit.problem


def test_experts_that_drop_nothing_go_with_ranks_that_share_positions():
    model = MODEL.changed(experts=MODEL.experts.changed(drop="none"))
    assert find_expert_misfit(model, TRAIN, ep=2, tensor="1d", cp=2) is None


def test_experts_are_shared_out_among_neighbours_with_the_same_positions():
    """Four replicas with two position parts each: 0.0 0.1 1.0 1.1 2.0 2.1 3.0 3.1."""
    layout = Layout(dp=4, cp=2, ep=2)
    assert layout.expert_replicas == 4
    coordinates = [layout.expert_coordinates(replica) for replica in range(8)]
    assert coordinates == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1)]


def test_replicas_and_evaluations_are_shared_out_evenly():
    misfit = find_batch_misfit(TRAIN, Layout(dp=6, ep=4))
    assert str(misfit).startswith("layout.ep: 4 does not divide layout.dp 6, the number of replicas that shard the")
    misfit = find_batch_misfit(TRAIN.changed(eval_samples=30), Layout(dp=4, ep=2))
    assert str(misfit).endswith("as the exchange of tokens among replicas needs: use 32")
    assert find_batch_misfit(TRAIN.changed(eval_samples=30), Layout(dp=4)) is None


@pytest.mark.parametrize(
    ("layout", "per_node", "message"),
    [
        ({"dp": 4, "ep": 4}, 4, "experts: the 4 ranks that hold a layer's experts are on one node"),
        ({"dp": 4, "ep": 4}, 2, "experts: the 4 ranks that hold a layer's experts are on several nodes"),
        ({"dp": 4, "ep": 2, "tp": 2}, 4, "experts: the 2 ranks that hold a layer's experts are on one node"),
        ({"dp": 4, "ep": 2, "tp": 2}, 2, "experts: the 2 ranks that hold a layer's experts are on several nodes"),
        ({"dp": 2, "ep": 2, "cp": 2}, 2, "experts: the 2 ranks that hold a layer's experts are on several nodes"),
        ({"dp": 2, "ep": 2, "cp": 2}, 4, "experts: the 2 ranks that hold a layer's experts are on one node"),
    ],
)
def test_a_dry_run_says_where_experts_are_shared_out(layout, per_node, message):
    cut = Layout(**layout)
    assert (
        describe_expert_placement(ep=cut.ep, tp=cut.tp, cp=cut.cp, ranks=cut.ranks, ranks_per_node=per_node) == message
    )


def test_more_experts_a_token_than_there_are_make_no_sense():
    with pytest.raises(ValueError, match="top 3 is more than count 2: lower top"):
        Experts(count=2, top=3)


def test_every_nth_layer_has_experts():
    assert MODEL.expert_layers == [1, 3]
    assert MODEL.changed(experts=None).expert_layers == []
    assert MODEL.changed(experts=Experts(count=4)).expert_layers == [0, 1, 2, 3]


def test_a_rule_may_name_the_traffic_of_experts():
    """A rule may apply to one pass or both. Rules for tensor parallelism do not apply to this traffic."""
    setting = TrafficSettings(Layout(dp=4, ep=2, tp=2), TRAIN)
    there, back = ("EP", "FORWARD", "ACT"), ("EP", "BACKWARD", "GRAD")
    assert {there, back} <= set(list_live_traffic(setting)) and not {there, back} & set(
        list_live_traffic(TrafficSettings(Layout(dp=4), TRAIN))
    )
    scheme = Scheme(rules=[Rule(dimension="TP", codec="zfp:16"), Rule(dimension="EP", phase="FORWARD", codec="int8")])
    assert [scheme.treatment(traffic).rule for traffic in (there, back, ("TP", "FORWARD", "ACT"))] == [2, 0, 1]
    assert find_content(there) == find_content(back) == "activations"
    with pytest.raises(ValueError, match="EP has only EP FORWARD ACT, EP BACKWARD GRAD"):
        Rule(dimension="EP", kind="PARAM", codec="int8")


def test_what_is_sent_again_may_not_be_rounded_at_random():
    scheme = Scheme(rules=[Rule(dimension="EP", codec="int8:256:stochastic")])
    layout = Layout(dp=2, ep=2)
    assert explain_wrong_gradients(scheme, TrafficSettings(layout, TRAIN)) is None
    assert "recompute: none" in str(
        explain_wrong_gradients(scheme, TrafficSettings(layout, TRAIN.changed(recompute="full")))
    )
