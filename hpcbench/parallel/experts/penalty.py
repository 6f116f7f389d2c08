"""Auxiliary losses of layers. Each layer adds the gradient of its own loss during the backward pass.

The main loss is computed on the last pipeline stage, but layers on all stages have auxiliary losses. A layer passes one
of its tensors through `add`, which does not change the values. In the backward pass, the auxiliary loss receives the
same gradient as if it were added to the main loss.
"""

from typing import Any

import torch
from torch import Tensor


class Penalty:
    """Scale of the auxiliary losses of layers.

    Attributes
    ----------
    factor
        Multiplier of the loss of a micro-batch: the loss scale divided by the number of micro-batches.
    """

    def __init__(self) -> None:
        self.factor = 1.0

    def add(self, x: Tensor, loss: Tensor) -> Tensor:
        """Return `x` unchanged. The backward pass of the result also runs the backward pass of `loss`."""
        if not torch.is_grad_enabled():
            return x
        same: Tensor = _Added.apply(x, loss, self)  # type: ignore[no-untyped-call]
        return same


class _Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, penalty: Penalty) -> Tensor:
        ctx.penalty = penalty
        ctx.save_for_backward(loss)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (loss,) = ctx.saved_tensors
        return gradients[0], torch.full_like(loss, ctx.penalty.factor), None
