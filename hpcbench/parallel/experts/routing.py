"""Routing of tokens to experts, computed from the router logits of each sample.

Each sample is routed separately: only the tokens of the same sample compete for the capacity of an expert (the groups
of arXiv 2006.16668, section 2.2). Therefore, the same tokens are dropped for every layout and micro-batch size, and
router losses are means over samples.

Shapes: b samples, s positions, E experts, k experts per token.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hpcbench.contract.experts import Experts

COMPARED = 2.0**12
"""Number of distinct probability levels used to compare tokens when an expert exceeds its capacity."""


class Routing(NamedTuple):
    """The selected experts of each token. All tensors are [b, s, k].

    Attributes
    ----------
    expert
        Indices of the token's experts, in descending order of probability.
    gate
        Weights of the experts' outputs, in fp32 or better.
    place
        Position of the token in its expert's order of acceptance, counting only tokens of the same sample.
    accepted
        Whether the token is within the capacity of the expert. Otherwise, the expert adds nothing to the token's
        output, and its gate receives no gradient.
    """

    expert: Tensor
    gate: Tensor
    place: Tensor
    accepted: Tensor


class Losses(NamedTuple):
    """Auxiliary losses of a router, averaged over samples."""

    balance: Tensor
    """Load-balancing loss ``E sum(f_i P_i)``.

    f_i is the share of the choices that select expert i, and P_i is the mean probability of this expert. The loss is 1
    if all experts are equal.
    """
    z: Tensor
    """Mean square of the log-sum-exp of the logits (arXiv 2202.08906, section 3.2)."""


def route(logits: Tensor, settings: Experts) -> Routing:
    """Select the experts of each token from the router logits, [b, s, E].

    With one expert per token, the gate is the probability of the expert (arXiv 2101.03961). With several experts, the
    gates are the probabilities divided by their sum over the token's experts.
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
    """Order the tokens of each expert by position, and return the index of each token in this order, [b, s, k]."""
    chosen = F.one_hot(expert, count).sum(dim=2)  # [b, s, E]: a token selects an expert at most once
    return (chosen.cumsum(dim=1) - chosen).gather(2, expert)


def by_probability(expert: Tensor, values: Tensor, count: int) -> Tensor:
    """Order the tokens of each expert by probability, then by position, and return each token's index, [b, s, k].

    Equal tokens, such as consecutive spaces, have probabilities that differ only by rounding, which depends on the
    micro-batch size. Therefore, probabilities are compared with a resolution of 12 bits.
    """
    b, s, _ = expert.shape
    rounded = (values * COMPARED).round()
    wanted = values.new_full((b, s, count), -1.0).scatter(2, expert, rounded)
    order = wanted.argsort(dim=1, descending=True, stable=True)
    places = torch.empty_like(order)
    places.scatter_(1, order, torch.arange(s, device=expert.device)[None, :, None].expand_as(order))
    return places.gather(2, expert)


Shares = Callable[[Tensor, int], Tensor]
"""Function that returns each expert's share of the choices, [b, E], given the choices and the number of experts."""


def own_shares(expert: Tensor, count: int) -> Tensor:
    """Return each expert's share of the choices of this rank, [b, E], in fp64."""
    return F.one_hot(expert, count).double().mean(dim=(1, 2))


def losses(logits: Tensor, expert: Tensor, shares: Shares = own_shares) -> Losses:
    """Compute the router losses from the logits, [b, s, E], and the selected experts, [b, s, k].

    Dropped choices are included. With context parallelism, `shares` must return the shares of whole samples. The mean
    of the ranks' losses is then the loss over all positions, because shares have no gradient and probabilities are
    averaged over positions.
    """
    count = logits.shape[-1]
    shares_of_all = shares(expert, count).to(logits.dtype)
    means = logits.softmax(dim=-1).mean(dim=1)  # [b, E]
    balance = count * (shares_of_all * means).sum(dim=-1).mean()
    return Losses(balance, logits.logsumexp(dim=-1).square().mean())
