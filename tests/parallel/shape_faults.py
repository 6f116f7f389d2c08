"""Planted faults in models with grouped queries, gated MLPs and RMSNorm."""

from typing import Any
from unittest.mock import patch

import torch.nn.functional as F  # noqa: N812
from planting import Patch, list_faults
from torch import Tensor

from hpcbench.comm.group import Group
from hpcbench.parallel.context import blocks
from hpcbench.parallel.experts.spread import Spread
from hpcbench.parallel.grid import norm
from hpcbench.train import model


def keys_of_another_group() -> Patch:
    """Queries of a group use the key of the next group."""

    def faulty(x: Tensor, q: Tensor) -> Tensor:
        return x.repeat(1, q.shape[1] // x.shape[1], 1, 1)

    return patch.object(blocks, "repeat_heads", faulty)


def gradient_of_one_query_of_a_group() -> Patch:
    """Keys receive the gradient of one query head instead of all heads in the group."""

    def faulty(x: Tensor, groups: int) -> Tensor:
        return x[:, :: x.shape[1] // groups].contiguous()

    return patch.object(blocks, "sum_heads", faulty)


def gates_in_one_half() -> Patch:
    """A rank treats the first half of its features as gates, although gates and values are interleaved."""

    def faulty(x: Tensor) -> Tensor:
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value

    return patch.dict(model.ACTIVATIONS, swiglu=faulty)


def squares_of_own_features() -> Patch:
    """The mean square is computed over the rank's own features only."""

    def faulty(values: Tensor, group: Group, *others: Any) -> Tensor:
        return values * group.size

    return patch.object(norm, "all_reduce", faulty)


def gelu_in_experts() -> Patch:
    """Experts of other ranks use a different activation function than the model."""
    computed = Spread._computed

    def faulty(self: Spread, rows: Tensor, plan: Any, experts: Any) -> Tensor:
        for layer in experts.values():
            layer.activation = lambda x: F.gelu(x[..., ::2]) * x[..., 1::2]
        return computed(self, rows, plan, experts)

    return patch.object(Spread, "_computed", faulty)


FAULTS = list_faults(
    keys_of_another_group,
    gradient_of_one_query_of_a_group,
    gates_in_one_half,
    squares_of_own_features,
    gelu_in_experts,
)
