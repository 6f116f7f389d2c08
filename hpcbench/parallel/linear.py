"""Linear layers that tensor parallelism splits along one dim of the weight (arXiv 1909.08053, section 3).

A column layer splits the outputs, and a row layer splits the inputs. A column layer and a following row layer form a
region, which communicates twice: at the input of the column layer and at the output of the row layer. t is the size of
the tensor-parallel group. `cut_evenly` defines the pieces.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.parallel.regions import Border, enter, leave


class ColumnLinear(nn.Module):
    """A layer with some rows of the weight, [n/t, k], which computes a part of the output from the whole input."""

    def __init__(self, plain: nn.Linear, border: Border) -> None:
        super().__init__()
        self._border = border
        local = _part(plain.out_features, border)
        self.weight = nn.Parameter(torch.empty(local, plain.in_features, device="meta"))
        self.bias = None if plain.bias is None else nn.Parameter(torch.empty(local, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the rank's part of the output, [b, s, n/t]."""
        return F.linear(enter(x, self._border), self.weight, self.bias)  # [b, s, k] or [b, s/t, k] -> [b, s, n/t]


class RowLinear(nn.Module):
    """A layer with some columns of the weight, [n, k/t], which computes partial sums from a part of the input."""

    def __init__(self, plain: nn.Linear, border: Border) -> None:
        super().__init__()
        self._border = border
        local = _part(plain.in_features, border)
        self.weight = nn.Parameter(torch.empty(plain.out_features, local, device="meta"))
        self.bias = None if plain.bias is None else nn.Parameter(torch.empty(plain.out_features, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output, summed over the ranks, at all positions or at this rank's positions."""
        partial = F.linear(x, self.weight)  # [b, s, k/t] -> [b, s, n]
        y = leave(partial, self._border)
        return y if self.bias is None else y + self.bias  # [b, s, n], or [b, s/t, n]


def _part(features: int, border: Border) -> int:
    return count_elements(cut_evenly(features, border.group.size)[border.group.rank])
