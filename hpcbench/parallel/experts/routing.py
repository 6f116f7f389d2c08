"""Routing of tokens to experts: a function of the router's logits, sample by sample.

A sample is routed by itself: its tokens compete with each other for the places of an expert, and with no other tokens
(the groups of arXiv 2006.16668, section 2.2). So the same tokens are dropped in every layout and for every size of
micro-batches, and losses of the router are means over samples.

Shapes: b samples, s positions, E experts, k experts of a token.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hpcbench.contract.experts import Experts

COMPARED = 2.0**12
"""Number of distinct levels of probabilities that are compared when an expert has too many tokens."""


class Routing(NamedTuple):
    """The experts of each token, each [b, s, k].

    Attributes
    ----------
    expert
        Indices of the token's experts, the most probable first.
    gate
        Weights of their outputs, in fp32 or better.
    place
        The token's place among the tokens of its sample that chose the expert, from 0, in the order of acceptance.
    accepted
        Whether the expert has a place for the token. An expert without a place adds nothing to the token's output, and
        its gate gets no gradient.
    """

    expert: Tensor
    gate: Tensor
    place: Tensor
    accepted: Tensor


class Losses(NamedTuple):
    """Losses of a router, means over samples."""

    balance: Tensor
    """``E sum(f_i P_i)``: f is the share of choices, P the mean probability of an expert; 1 where all are equal."""
    z: Tensor
    """Mean square of the logarithm of the softmax's denominator (arXiv 2202.08906, section 3.2)."""


def route(logits: Tensor, settings: Experts) -> Routing:
    """Choose the experts of the tokens by their logits, [b, s, E].

    With one expert per token the gate is its probability (arXiv 2101.03961); with more, gates are probabilities divided
    by the sum over the token's experts.
    """
    values, expert = logits.softmax(dim=-1).topk(settings.top, dim=-1)  # [b, s, k]
    gate = values if settings.top == 1 else values / values.sum(dim=-1, keepdim=True)
    if settings.drop == "none":
        place = torch.zeros_like(expert)
        return Routing(expert, gate, place, torch.ones_like(expert, dtype=torch.bool))
    order = by_probability if settings.drop == "probability" else by_position
    place = order(expert, values.detach(), settings.count)
    return Routing(expert, gate, place, place < settings.places(logits.shape[1]))


def by_position(expert: Tensor, values: Tensor, count: int) -> Tensor:
    """Order the tokens of an expert by position, and return their places: [b, s, k]."""
    chosen = F.one_hot(expert, count).sum(dim=2)  # [b, s, E]: a token chooses an expert at most once
    return (chosen.cumsum(dim=1) - chosen).gather(2, expert)


def by_probability(expert: Tensor, values: Tensor, count: int) -> Tensor:
    """Order the tokens of an expert by probability, then by position, and return their places: [b, s, k].

    Equal tokens, such as spaces in a row, have probabilities that are equal but for rounding, which depends on the size
    of a micro-batch. So probabilities are compared to 12 bits.
    """
    b, s, _ = expert.shape
    rounded = (values * COMPARED).round()
    wanted = values.new_full((b, s, count), -1.0).scatter(2, expert, rounded)
    order = wanted.argsort(dim=1, descending=True, stable=True)
    places = torch.empty_like(order)
    places.scatter_(1, order, torch.arange(s, device=expert.device)[None, :, None].expand_as(order))
    return places.gather(2, expert)


Shares = Callable[[Tensor, int], Tensor]
"""A function of choices [b, s, k] and the number of experts: the experts' shares of the choices, [b, E]."""


def own_shares(expert: Tensor, count: int) -> Tensor:
    """Return the experts' shares of these choices, [b, E], in fp64."""
    return F.one_hot(expert, count).double().mean(dim=(1, 2))


def losses(logits: Tensor, expert: Tensor, shares: Shares = own_shares) -> Losses:
    """Compute the router's losses from logits [b, s, E] and the chosen experts [b, s, k], dropped or not.

    If ranks share the positions of samples, `shares` returns those of whole samples. The mean of the ranks' losses is
    then the loss of all positions: shares have no gradient, and the other factor is a mean over positions.
    """
    count = logits.shape[-1]
    shares_of_all = shares(expert, count).to(logits.dtype)
    means = logits.softmax(dim=-1).mean(dim=1)  # [b, E]
    balance = count * (shares_of_all * means).sum(dim=-1).mean()
    return Losses(balance, logits.logsumexp(dim=-1).square().mean())
