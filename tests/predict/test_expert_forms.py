"""Tests of memory, traffic and operations of layers with experts, compared with numbers computed by hand."""

import pytest
from counted_calls import Routed, count_counted_bytes

from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Model
from hpcbench.predict import flops, volume
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.experts import describe_experts
from hpcbench.predict.memory import predict_memory
from hpcbench.predict.workload import Workload, make_train

H = 32
EXPERTS = Experts(count=8, top=2, capacity=1.0, min_capacity=1)
MODEL = Model(layers=4, hidden=H, heads=4, experts=EXPERTS)
DENSE = MODEL.changed(experts=None)
TRAIN = make_train(global_batch=16, micro_batch=2, seq_len=64, precision="fp32", zero=1)
MLP = 8 * H * H + 5 * H


def held(model, layout, rank=0):
    return sum(bucket.filled * count for bucket, count in StepCalls(model, TRAIN, layout, rank).buckets)


@pytest.mark.parametrize(("dp", "ep", "shared"), [(8, 1, False), (8, 2, False), (8, 8, True)])
def test_a_rank_holds_its_share_of_the_experts_and_all_else(dp, ep, shared):
    model = MODEL.changed(experts=EXPERTS.changed(shared=shared))
    more = held(model, Layout(dp=dp, ep=ep)) - held(DENSE, Layout(dp=dp))
    assert more == 4 * ((8 // ep + shared - 1) * MLP + 8 * H)


def test_the_whole_model_is_counted_with_all_experts():
    sizes = {"layers": 4, "hidden": H, "vocab": 256, "seq_len": 64, "positions": "rotary", "tied": False}
    for model in (MODEL, DENSE):
        shape = describe_experts(model, TRAIN, Layout())
        assert flops.count_parameters(**sizes, experts=shape) == held(model, Layout())


SIZES = {"layers": 4, "hidden": H, "vocab": 256, "seq_len": 64}


def beyond_dense(shape, recompute="none"):
    """Return how many operations a sample's forward pass needs and executes, in addition to those of a dense model."""
    executed = {**SIZES, "recompute": recompute}
    return (
        (flops.count_model_flops(**SIZES, experts=shape) - flops.count_model_flops(**SIZES)) / 3,
        (flops.count_hardware_flops(**executed, experts=shape) - flops.count_hardware_flops(**executed))
        / (4 if recompute == "full" else 3),
    )


@pytest.mark.parametrize(
    ("layout", "changes", "needed", "executed", "routers"),
    [
        # 64 tokens choose 2 of 8 experts: 128 rows, and 16 slots per expert at capacity 1
        (Layout(), {}, 128, 128, 1),
        (Layout(dp=4, ep=4), {}, 128, 128, 1),
        (Layout(dp=4), {"capacity": 1.25}, 128, 128, 1),
        (Layout(dp=4, ep=4), {"capacity": 1.25}, 128, 8 * 20, 1),
        (Layout(dp=2, ep=2), {"capacity": 1.25, "drop": "probability"}, 128, 8 * 20, 1),
        (Layout(tp=2), {"capacity": 2.0}, 128, 8 * 32, 2),
        (Layout(dp=2, ep=2, tp=4), {"capacity": 1.01}, 128, 8 * 17, 4),
        (Layout(dp=2, ep=2), {"capacity": 100.0}, 128, 8 * 64, 1),
        (Layout(), {"capacity": 0.5}, 64, 64, 1),
        (Layout(dp=8, ep=8), {"capacity": 0.5}, 64, 64, 1),
        (Layout(dp=8, ep=8), {"capacity": 0.5, "min_capacity": 12}, 96, 96, 1),
        (Layout(dp=8, ep=8, tp=2), {"drop": "none"}, 128, 128, 2),
        (Layout(dp=2, ep=2, cp=2), {"drop": "none", "top": 1}, 64, 64, 1),
        (Layout(dp=2, ep=2), {"capacity": 1.25, "shared": True}, 128 + 64, 8 * 20 + 64, 1),
    ],
)
def test_rows_that_are_needed_and_rows_that_are_executed(layout, changes, needed, executed, routers):
    """The MLPs of the experts replace the dense MLP, which processes 64 tokens."""
    shape = describe_experts(MODEL.changed(experts=EXPERTS.changed(**changes)), TRAIN, layout)
    router = 2 * 64 * 8 * H
    assert beyond_dense(shape) == pytest.approx(
        (4 * ((needed - 64) * 16 * H * H + router), 4 * ((executed - 64) * 16 * H * H + routers * router))
    )


def test_tokens_that_were_dropped_are_not_needed():
    """100 of 128 rows were kept. However, ranks that exchange rows compute all slots."""
    wide = EXPERTS.changed(capacity=1.25, every=2)
    for layout, executed in ((Layout(dp=4, ep=4), 160), (Layout(dp=4), 100)):
        shape = describe_experts(MODEL.changed(experts=wide), TRAIN, layout)._replace(kept_rows=100.0)
        router = 2 * 64 * 8 * H
        assert beyond_dense(shape, "full") == pytest.approx(
            (2 * (36 * 16 * H * H + router), 2 * ((executed - 64) * 16 * H * H + router))
        )


def test_a_lower_capacity_never_counts_more():
    counts = []
    for capacity in (0.25, 0.5, 1.0, 1.25, 2.0, 8.0):
        model = MODEL.changed(experts=EXPERTS.changed(capacity=capacity))
        counts.append(beyond_dense(describe_experts(model, TRAIN, Layout(dp=4, ep=4))))
    for rows in zip(*counts, strict=True):
        assert list(rows) == sorted(rows)


def test_bytes_of_dispatch_and_combine():
    """Of ``8 experts x 2 samples x 16 slots x h`` values, three quarters are sent, twice per layer and pass."""
    sent = volume.count_step_bytes(MODEL, TRAIN, Layout(dp=4, ep=4), 0)
    each = 8 * 2 * 16 * H * 4 * 3 // 4
    assert sent["EP", "FORWARD", "ACT"] == sent["EP", "BACKWARD", "GRAD"] == 2 * 4 * 2 * each
    again = volume.count_step_bytes(MODEL, TRAIN.changed(recompute="full"), Layout(dp=4, ep=4), 0)
    assert again["EP", "FORWARD", "ACT"] == 2 * sent["EP", "FORWARD", "ACT"]
    assert again["EP", "BACKWARD", "GRAD"] == sent["EP", "BACKWARD", "GRAD"]


def test_bytes_without_drops_are_those_of_the_counts():
    model = MODEL.changed(experts=EXPERTS.changed(drop="none"))
    layout = Layout(dp=4, ep=4)
    sent = count_counted_bytes(model, TRAIN, layout, 1, routed=Routed(sent=100, received=70, computed=90))
    assert sent["EP", "FORWARD", "ACT"] == sent["EP", "BACKWARD", "GRAD"] == 170 * H * 4
    balanced = volume.count_step_bytes(model, TRAIN, layout, 1)
    assert balanced["EP", "FORWARD", "ACT"] == 2 * 4 * 2 * (2 * 64 * 2 * H * 4 * 3 // 4)
    counts = 2 * 4 * 3 * 2 * 8  # from two experts to each of three ranks, in two micro-batches of four layers
    exact = "EXACT", "FORWARD", "ACT"
    assert sent[exact] == balanced[exact] == counts


def test_gradients_of_experts_are_summed_where_they_are_held():
    """If the experts are divided over all ranks, each expert is on one rank.

    If the experts are divided over half of the ranks, each expert is on two ranks.
    """
    train = TRAIN.changed(zero=0)
    dense = volume.count_step_bytes(DENSE, train, Layout(dp=4), 0)["DP", "BACKWARD", "GRAD"]
    alone = volume.count_step_bytes(MODEL, train, Layout(dp=4, ep=4), 0)["DP", "BACKWARD", "GRAD"]
    assert alone < dense, "experts are not sent, and MLPs are"
    halves = volume.count_all_ranks_bytes(MODEL, train, Layout(dp=4, ep=2))["DP", "BACKWARD", "GRAD"]
    none = volume.count_all_ranks_bytes(MODEL, train, Layout(dp=4, ep=4))["DP", "BACKWARD", "GRAD"]
    assert halves - none == pytest.approx(4 * 4 * 2 * (4 * 4 * MLP) / 2, rel=0.01)


def test_experts_take_memory_by_what_a_rank_holds_and_what_comes():
    item, four = (
        predict_memory(Workload(MODEL, TRAIN.changed(zero=0), Layout(dp=4, ep=ep), 4), None).peaks["after reduction"]
        for ep in (1, 4)
    )
    assert item["weights"] - four["weights"] == pytest.approx(4 * 4 * 6 * MLP, rel=0.01)
    tight, wide = (
        predict_memory(Workload(MODEL.changed(experts=EXPERTS.changed(capacity=c)), TRAIN, Layout(dp=4, ep=4), 4), None)
        for c in (1.0, 2.0)
    )
    kinds = [result.peaks["before backward"] for result in (tight, wide)]
    assert kinds[1]["activations"] > kinds[0]["activations"] and kinds[1]["transient"] > kinds[0]["transient"]
