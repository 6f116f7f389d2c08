"""Losses of layers inside the model, whose gradients join the backward pass where they arise.

The loss of the text is computed on the last pipeline stage, and layers of all stages have losses of their own. A layer
passes one of its tensors through `add`: values do not change, and in the backward pass the layer's loss gets the
gradient that it would have as a summand of the text's loss.
"""

from typing import Any

import torch
from torch import Tensor


class Penalty:
    """The factor of a layer's losses.

    Attributes
    ----------
    factor
        Factor of the text's loss of a micro-batch: the loss scale over the number of micro-batches.
    """

    def __init__(self) -> None:
        self.factor = 1.0

    def add(self, x: Tensor, loss: Tensor) -> Tensor:
        """Return `x`. Its backward pass includes that of the loss."""
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
