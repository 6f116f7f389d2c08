"""Tests of token routing to experts, with cases computed by hand, and of the order in which rows are sent."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.contract.experts import Experts
from hpcbench.contract.training import Model
from hpcbench.parallel.experts.parcels import with_places, without_places
from hpcbench.parallel.experts.penalty import Penalty
from hpcbench.parallel.experts.routing import losses, route
from hpcbench.train.experts import ExpertMLP
from hpcbench.train.model import MLP, loss

NARROW = Experts(count=2, top=1, capacity=1.0, min_capacity=1)
"""Two experts, each with a capacity of two, for four tokens."""

FIRST = [0.9, 0.6, 0.8, 0.7]
"""Probabilities of expert 0 for four tokens. All tokens prefer expert 0."""


def logits_of(first):
    """Return the logits of two experts, shape [1, s, 2], given the probabilities of the first expert."""
    p = torch.tensor(first, dtype=torch.float64)
    return torch.stack((p, 1 - p), dim=-1).log()[None]


def of_tokens(values):
    return values.flatten(0, 1).tolist()


def test_later_positions_are_dropped():
    routing = route(logits_of(FIRST), NARROW)
    assert of_tokens(routing.expert) == [[0], [0], [0], [0]]
    assert of_tokens(routing.place) == [[0], [1], [2], [3]]
    assert of_tokens(routing.accepted) == [[True], [True], [False], [False]]
    torch.testing.assert_close(routing.gate.flatten(), torch.tensor(FIRST, dtype=torch.float64))


def test_lower_probabilities_are_dropped():
    routing = route(logits_of(FIRST), NARROW.changed(drop="probability"))
    assert of_tokens(routing.place) == [[0], [3], [1], [2]]
    assert of_tokens(routing.accepted) == [[True], [False], [True], [False]]


def test_of_equal_probabilities_the_earlier_token_is_kept():
    routing = route(logits_of([0.8, 0.8, 0.8, 0.8]), NARROW.changed(drop="probability"))
    assert of_tokens(routing.place) == [[0], [1], [2], [3]]


def test_values_that_differ_by_rounding_count_as_equal():
    routing = route(logits_of([0.8, 0.8 + 1e-15, 0.8 - 1e-15, 0.8 + 2e-15]), NARROW.changed(drop="probability"))
    assert of_tokens(routing.place) == [[0], [1], [2], [3]]


@pytest.mark.parametrize("drop", ["position", "probability"])
def test_each_expert_has_its_own_places(drop):
    routing = route(logits_of([0.9, 0.2, 0.8, 0.4]), NARROW.changed(drop=drop))
    assert of_tokens(routing.expert) == [[0], [1], [0], [1]]
    assert of_tokens(routing.place) == [[0], [0], [1], [1]]
    assert routing.accepted.all()


def test_nothing_is_dropped():
    assert route(logits_of(FIRST), NARROW.changed(drop="none")).accepted.all()


def test_two_experts_a_token():
    """Three experts share eight choices, so each has a capacity of ``max(1, ceil(2 * 4 / 3 * 0.75)) = 2``."""
    probabilities = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.4, 0.1, 0.5]]).double()
    settings = Experts(count=3, top=2, capacity=0.75, min_capacity=1)
    assert settings.places(4) == 2
    routing = route(probabilities.log()[None], settings)
    assert of_tokens(routing.expert) == [[0, 1], [0, 1], [1, 2], [2, 0]]
    # expert 0 is chosen by tokens 0, 1 and 3, expert 1 by 0, 1 and 2, expert 2 by 2 and 3
    assert of_tokens(routing.place) == [[0, 0], [1, 1], [2, 0], [1, 2]]
    assert of_tokens(routing.accepted) == [[True, True], [True, True], [False, True], [True, False]]
    torch.testing.assert_close(
        routing.gate[0], torch.tensor([[5 / 8, 3 / 8], [2 / 3, 1 / 3], [5 / 8, 3 / 8], [5 / 9, 4 / 9]]).double()
    )
    accepted = route(probabilities.log()[None], settings.changed(drop="probability")).accepted
    # token 3 is dropped from expert 0 (0.5, 0.6, 0.4), and token 1, the later of equals, from expert 1 (0.3, 0.3, 0.5)
    assert of_tokens(accepted) == [[True, True], [True, False], [True, True], [True, False]]


def test_samples_do_not_compete():
    logits = logits_of(FIRST)
    alone = route(logits, NARROW)
    both = route(torch.cat((logits, logits.flip(1))), NARROW)
    assert torch.equal(both.accepted[0], alone.accepted[0]) and torch.equal(both.accepted[1], alone.accepted[0])


@pytest.mark.parametrize(
    ("settings", "tokens", "places"),
    [
        (Experts(count=8, top=2, capacity=1.25, min_capacity=4), 128, 40),
        (Experts(count=8, top=1, capacity=1.0, min_capacity=4), 16, 4),
        (Experts(count=3, top=1, capacity=1.1, min_capacity=1), 30, 11),
        (Experts(count=4, top=2, capacity=4.0, min_capacity=1), 12, 12),
        (Experts(count=4, top=1, min_capacity=64), 12, 12),
    ],
)
def test_places(settings, tokens, places):
    assert settings.places(tokens) == places


def test_losses_of_equal_and_of_one_sided_routers():
    even = torch.zeros(1, 4, 4, dtype=torch.float64)
    result = losses(even, torch.tensor([[[0], [1], [2], [3]]]))
    assert float(result.balance) == pytest.approx(1.0)
    assert float(result.z) == pytest.approx(1.3862943611198906**2)
    p = torch.tensor([0.7, 0.1, 0.1, 0.1]).double()
    result = losses(p.log().expand(1, 4, 4), torch.zeros(1, 4, 1, dtype=torch.int64))
    assert float(result.balance) == pytest.approx(4 * 0.7)
    assert float(result.z) == pytest.approx(0.0)


def test_losses_are_means_over_samples():
    logits = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    chosen = route(logits, Experts(count=4, top=2)).expert
    expected = losses(logits, chosen)
    parts = [losses(logits[i : i + 1], chosen[i : i + 1]) for i in range(3)]
    for k in range(2):
        torch.testing.assert_close(expected[k], torch.stack([part[k] for part in parts]).mean())


def test_a_penalty_has_the_gradient_of_a_summand():
    """The reference explicitly adds the penalty to the loss, for one of four micro-batches and a loss scale of 64."""
    model = Model(layers=1, hidden=8, heads=2, experts=Experts(count=4, top=2, balance=0.5, z_loss=0.25, drop="none"))
    assert model.experts
    torch.manual_seed(3)
    layer = ExpertMLP(8, model.experts, lambda: MLP(model, model.middle), None).double()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    seen = []
    layer.watch = lambda routing, loss_terms: seen.append(loss_terms)
    targets = torch.randint(0, 8, (2, 6))
    factor = 64.0 / 4
    layer.penalty.factor = factor
    (loss(layer(x), targets) * factor).backward()
    ours = {name: parameter.grad.clone() for name, parameter in layer.named_parameters()}
    layer.zero_grad()
    layer.penalty.factor = 0.0
    text = loss(layer(x), targets)
    router = seen[-1]
    (factor * (text + 0.5 * router.balance + 0.25 * router.z)).backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-12, atol=1e-14)
    layer.zero_grad()
    loss(layer(x), targets).backward()
    assert not torch.allclose(ours["router.weight"], factor * layer.router.weight.grad), "the losses do not matter"


def test_a_dropped_token_adds_nothing_and_its_gate_gets_no_gradient():
    settings = NARROW.changed(balance=0.0, z_loss=0.0)
    model = Model(layers=1, hidden=2, heads=1, experts=settings)
    layer = ExpertMLP(2, settings, lambda: MLP(model, model.middle), None).double()
    with torch.no_grad():
        layer.router.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    x = torch.tensor([[[1.0, 0.3], [0.5, 0.2], [2.0, 0.1], [0.7, 0.4]]], dtype=torch.float64)  # all prefer expert 0
    x.requires_grad_()
    y = layer(x)
    assert y[0, :2].abs().sum() > 0 and torch.equal(y[0, 2:], torch.zeros(2, 2, dtype=torch.float64))
    y.sum().backward()
    assert x.grad[0, :2].abs().sum() > 0 and torch.equal(x.grad[0, 2:], torch.zeros(2, 2, dtype=torch.float64))


def test_a_penalty_outside_a_graph_does_nothing():
    x = torch.ones(2)
    with torch.no_grad():
        assert Penalty().add(x, torch.ones(())) is x


@st.composite
def routings(draw):
    ranks = draw(st.sampled_from([1, 2, 4]))
    count = ranks * draw(st.integers(1, 3))
    top = draw(st.integers(1, min(3, count)))
    drop = draw(st.sampled_from(["position", "probability", "none"]))
    capacity = draw(st.sampled_from([0.3, 1.0, 2.0]))
    settings = Experts(count=count, top=top, drop=drop, capacity=capacity, min_capacity=1)
    shape = ranks, draw(st.integers(1, 3)), draw(st.integers(1, 6)), count
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    return settings, [route(sample, settings) for sample in logits]


@given(routings())
@settings(max_examples=60, deadline=None)
def test_every_row_reaches_its_expert_and_returns(given_):
    """Check the dispatch plans of all ranks in one process.

    A row contains its rank, choice and expert, and experts record the rows that they receive.
    """
    settings_, everyones = given_
    ranks, held = len(everyones), settings_.count // len(everyones)
    counts = [each.expert.reshape(-1).bincount(minlength=settings_.count).tolist() for each in everyones]
    plans = []
    for rank, routing in enumerate(everyones):
        if settings_.drop == "none":
            received = [count for sender in counts for count in sender[rank * held : (rank + 1) * held]]
            exchange = lambda counts_here, received=received: received  # noqa: E731
            plans.append(without_places(routing, count=settings_.count, ranks=ranks, exchange=exchange))
        else:
            places = settings_.places(routing.expert.shape[1])
            plans.append(with_places(routing, count=settings_.count, places=places, ranks=ranks))
    sent = []
    for rank, (plan, routing) in enumerate(zip(plans, everyones, strict=True)):
        chosen = torch.cat((routing.expert.reshape(-1), torch.tensor([-1])))
        rows = torch.stack((torch.full_like(plan.source, rank), plan.source, chosen[plan.source]), dim=1)
        sent.append(rows.split(plan.counts.sends))
    came = [torch.cat([sent[sender][rank] for sender in range(ranks)]) for rank in range(ranks)]
    for rank, plan in enumerate(plans):
        assert [len(sent[sender][rank]) for sender in range(ranks)] == list(plan.counts.receives)
        pieces = came[rank][plan.by_expert].split(plan.experts)
        for k, piece in enumerate(pieces):
            assert set(piece[:, 2].tolist()) <= {rank * held + k, -1}
        assert torch.equal(came[rank][plan.by_expert][plan.by_sender], came[rank])
    back = [came[rank].split(plans[rank].counts.receives) for rank in range(ranks)]
    for rank, (plan, routing) in enumerate(zip(plans, everyones, strict=True)):
        home = torch.cat([back[holder][rank] for holder in range(ranks)] + [torch.tensor([[-1, -1, -1]])])
        returned = home[plan.back]
        for choice, row in enumerate(returned.tolist()):
            expert = int(routing.expert.reshape(-1)[choice])
            assert row == ([rank, choice, expert] if bool(routing.accepted.reshape(-1)[choice]) else [-1, -1, -1])
