"""What layers with experts hold, send and compute, against numbers that were worked out by hand."""

import pytest

from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Model
from hpcbench.predict import flops, volume
from hpcbench.predict.buckets import buckets_of
from hpcbench.predict.experts import Routed, expert_shape
from hpcbench.predict.memory import memory
from hpcbench.predict.subject import Subject, train_of

H = 32
EXPERTS = Experts(count=8, top=2, capacity=1.0, min_capacity=1)
MODEL = Model(layers=4, hidden=H, heads=4, experts=EXPERTS)
DENSE = MODEL.changed(experts=None)
TRAIN = train_of(global_batch=16, micro_batch=2, seq_len=64, precision="fp32", zero=1)
MLP = 8 * H * H + 5 * H


def held(model, layout, rank=0):
    return sum(bucket.filled for bucket in buckets_of(model, TRAIN, layout, rank))


@pytest.mark.parametrize(("dp", "ep", "shared"), [(8, 1, False), (8, 2, False), (8, 8, True)])
def test_a_rank_holds_its_share_of_the_experts_and_all_else(dp, ep, shared):
    model = MODEL.changed(experts=EXPERTS.changed(shared=shared))
    more = held(model, Layout(dp=dp, ep=ep)) - held(DENSE, Layout(dp=dp))
    assert more == 4 * ((8 // ep + shared - 1) * MLP + 8 * H)


def test_the_whole_model_is_counted_with_all_experts():
    sizes = {"layers": 4, "hidden": H, "vocab": 256, "seq_len": 64, "positions": "rotary", "tied": False}
    assert flops.parameters(**sizes, experts=expert_shape(MODEL)) == held(MODEL, Layout())
    assert flops.parameters(**sizes, experts=expert_shape(DENSE)) == held(DENSE, Layout())


def test_a_token_costs_the_experts_that_it_goes_through():
    sizes = {"layers": 4, "hidden": H, "vocab": 256, "seq_len": 64}
    more = flops.model_flops_per_sample(**sizes, experts=expert_shape(MODEL)) - flops.model_flops_per_sample(**sizes)
    assert more == pytest.approx(3 * 64 * 4 * (16 * H * H + 2 * 8 * H))
    every = MODEL.changed(experts=EXPERTS.changed(every=2, shared=True))
    again = {"recompute": "full"}
    more = flops.hardware_flops_per_sample(**sizes, **again, experts=expert_shape(every))
    assert more - flops.hardware_flops_per_sample(**sizes, **again) == pytest.approx(
        4 * 64 * 2 * (2 * 16 * H * H + 2 * 8 * H)
    )


def test_bytes_of_dispatch_and_combine():
    """``8 experts x 2 samples x 16 places x h`` values leave, of which a quarter stays, twice a layer and pass."""
    sent = volume.step_bytes(MODEL, TRAIN, Layout(dp=4, ep=4), 0)
    each = 8 * 2 * 16 * H * 4 * 3 // 4
    assert sent["EP", "FORWARD", "ACT"] == sent["EP", "BACKWARD", "GRAD"] == 2 * 4 * 2 * each
    again = volume.step_bytes(MODEL, TRAIN.changed(recompute="full"), Layout(dp=4, ep=4), 0)
    assert again["EP", "FORWARD", "ACT"] == 2 * sent["EP", "FORWARD", "ACT"]
    assert again["EP", "BACKWARD", "GRAD"] == sent["EP", "BACKWARD", "GRAD"]


def test_bytes_without_drops_are_those_of_the_counts():
    model = MODEL.changed(experts=EXPERTS.changed(drop="none"))
    layout = Layout(dp=4, ep=4)
    sent = volume.step_bytes(model, TRAIN, layout, 1, routed=Routed(sent=100, received=70, computed=90))
    assert sent["EP", "FORWARD", "ACT"] == sent["EP", "BACKWARD", "GRAD"] == 170 * H * 4
    balanced = volume.step_bytes(model, TRAIN, layout, 1)
    assert balanced["EP", "FORWARD", "ACT"] == 2 * 4 * 2 * (2 * 64 * 2 * H * 4 * 3 // 4)
    counts = 2 * 4 * 3 * 2 * 8  # of two experts to each of three ranks, in two micro-batches of four layers
    exact = "EXACT", "FORWARD", "ACT"
    assert sent[exact] == balanced[exact] == counts


def test_gradients_of_experts_are_summed_where_they_are_held():
    """With as many ranks as share out experts nobody else holds them; halves have one more holder."""
    train = TRAIN.changed(zero=0)
    dense = volume.step_bytes(DENSE, train, Layout(dp=4), 0)["DP", "BACKWARD", "GRAD"]
    alone = volume.step_bytes(MODEL, train, Layout(dp=4, ep=4), 0)["DP", "BACKWARD", "GRAD"]
    assert alone < dense, "experts are not sent, and MLPs are"
    halves = volume.all_ranks_bytes(MODEL, train, Layout(dp=4, ep=2))["DP", "BACKWARD", "GRAD"]
    none = volume.all_ranks_bytes(MODEL, train, Layout(dp=4, ep=4))["DP", "BACKWARD", "GRAD"]
    assert halves - none == pytest.approx(4 * 4 * 2 * (4 * 4 * MLP) / 2, rel=0.01)


def test_experts_take_memory_by_what_a_rank_holds_and_what_comes():
    one, four = (
        memory(Subject(MODEL, TRAIN.changed(zero=0), Layout(dp=4, ep=ep), 4), None).peaks["after reduction"]
        for ep in (1, 4)
    )
    assert one["weights"] - four["weights"] == pytest.approx(4 * 4 * 6 * MLP, rel=0.01)
    tight, wide = (
        memory(Subject(MODEL.changed(experts=EXPERTS.changed(capacity=c)), TRAIN, Layout(dp=4, ep=4), 4), None)
        for c in (1.0, 2.0)
    )
    kinds = [found.peaks["before backward"] for found in (tight, wide)]
    assert kinds[1]["activations"] > kinds[0]["activations"] and kinds[1]["transient"] > kinds[0]["transient"]
