"""Start of a backward pass at a result with a given gradient: at the end of a stage, or of a recomputed piece."""

from typing import Any

import torch
from torch import Tensor


class _Given(torch.autograd.Function):
    """Stand-in for the rest of the model behind a result, whose gradient is given."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return result.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None


def start_backward(result: Tensor, gradient: Tensor) -> None:
    """Add the gradients of all inputs of `result`, with the bits of ``result.backward(gradient)``.

    That method imports PyTorch's symbolic shapes, and with them SymPy, at its first call: about a second of each rank.

    Parameters
    ----------
    result
        The tensor with its graph.
    gradient
        The loss's gradient of `result`, of the same shape and type.
    """
    with torch.enable_grad():
        _Given.apply(result, gradient).backward()  # type: ignore[no-untyped-call]
