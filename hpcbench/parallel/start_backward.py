"""Start of a backward pass with a given gradient, at the output of a stage or a recomputed piece."""

from typing import Any

import torch
from torch import Tensor


class _Given(torch.autograd.Function):
    """Autograd function that stands for the rest of the model and returns a given gradient."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return result.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None


def start_backward(result: Tensor, gradient: Tensor) -> None:
    """Accumulate the gradients of all inputs of `result`, bitwise identical to ``result.backward(gradient)``.

    The first call of ``Tensor.backward`` with a gradient imports PyTorch's symbolic shapes and SymPy, which takes about
    a second on each rank.

    Parameters
    ----------
    result
        Tensor with an autograd graph.
    gradient
        Gradient of the loss with respect to `result`, with the same shape and dtype.
    """
    with torch.enable_grad():
        _Given.apply(result, gradient).backward()  # type: ignore[no-untyped-call]
