"""Linear layers that tensor parallelism has split along one side of the weight (arXiv 1909.08053, section 3).

A column layer splits the outputs, a row layer the inputs; paired, they need one all-reduce forward (as the row layer
ends) and one backward (as the column layer begins). t is the size of the tensor-parallel group.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.parallel.regions import enter, leave


class ColumnLinear(nn.Module):
    """Rows of the weight [n/t, k]: whole input, a part of the output."""

    def __init__(self, plain: nn.Linear, group: Group, backward: Channel) -> None:
        super().__init__()
        self._group, self._backward = group, backward
        local = plain.out_features // group.size
        self.weight = nn.Parameter(torch.empty(local, plain.in_features, device="meta"))
        self.bias = nn.Parameter(torch.empty(local, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(enter(x, self._group, self._backward), self.weight, self.bias)  # [b, s, k] -> [b, s, n/t]


class RowLinear(nn.Module):
    """Columns of the weight [n, k/t]: a part of the input, the whole output."""

    def __init__(self, plain: nn.Linear, group: Group, forward: Channel) -> None:
        super().__init__()
        self._group, self._forward = group, forward
        self.weight = nn.Parameter(torch.empty(plain.out_features, plain.in_features // group.size, device="meta"))
        self.bias = nn.Parameter(torch.empty(plain.out_features, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        partial = F.linear(x, self.weight)  # [b, s, k/t] -> [b, s, n]
        return leave(partial, self._group, self._forward) + self.bias


SHARDED_DIMS: dict[type[nn.Module], dict[str, int]] = {
    ColumnLinear: {"weight": 0, "bias": 0},
    RowLinear: {"weight": 1},
}
"""The dim of each parameter that its layer splits; parameters that are not named here are whole on every rank."""
