"""Activation recomputation. The backward pass recomputes a piece of the model, so only its inputs are stored.

The second forward pass performs the same operations on the same values as the first, because the model draws no random
numbers. Gradients are therefore bitwise identical to gradients without recomputation. Tensor-parallel collectives are
repeated and counted, so each recomputed layer sends its forward traffic twice. A codec with stochastic rounding would
round differently the second time, so such codecs are rejected for this traffic
(`contract.rules.explain_wrong_gradients`).

PyTorch's own ``checkpoint`` would import the compiler, which takes seconds, and save the state of the random generator.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.parallel.start_backward import start_backward

Run = Callable[..., Tensor]


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Run, *inputs: Tensor) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(*inputs)
        return run(*inputs)  # without a graph

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, result = again(ctx.run, ctx.saved_tensors, ctx.needs_input_grad[1:])
        start_backward(result, gradients[0])
        return None, *(x.grad for x in inputs)


def again(run: Run, inputs: Sequence[Tensor], wanted: Sequence[bool]) -> tuple[list[Tensor], Tensor]:
    """Return copies of the inputs (requiring gradients where `wanted` is set), and the result with its graph."""
    leaves = [x.detach().requires_grad_(want) for x, want in zip(inputs, wanted, strict=True)]
    with torch.enable_grad():
        return leaves, run(*leaves)


class Recomputed(nn.Module):
    """A piece of the model that keeps only its inputs.

    Parameters
    ----------
    run
        The piece: a function of tensors that returns one tensor. At least one input must require a gradient.
        Otherwise, the parameters receive no gradients.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = [run]  # in a list, because a module would become a submodule and rename its parameters

    def forward(self, *inputs: Tensor) -> Tensor:
        """Compute the result of the piece. Only the inputs are kept for the backward pass."""
        (run,) = self._run
        if not torch.is_grad_enabled():
            return run(*inputs)
        result: Tensor = _Recomputed.apply(run, *inputs)  # type: ignore[no-untyped-call]
        return result


def recompute(part: Any, what: str | int) -> None:
    """Wrap the blocks of a part of the model in-place.

    Parameters
    ----------
    part
        Part of a model. The part must have ``blocks``, and each block must have ``attention.core``.
    what
        ``none``, ``selective``, ``full`` or a number n. ``selective`` recomputes the attention core of each layer,
        which consists of scores, softmax and the product with the values (arXiv 2205.05198, section 5). ``full``
        recomputes each layer. A number n recomputes groups of n layers, which keep only the input of the first layer.
    """
    if what == "none":
        return
    blocks = list(part.blocks.values())
    if what == "selective":
        for block in blocks:
            block.attention.core = Recomputed(block.attention.core)
        return
    n = 1 if what == "full" else int(what)
    groups = [nn.Sequential(*blocks[first : first + n]) for first in range(0, len(blocks), n)]
    part.blocks = nn.ModuleDict({str(k): Recomputed(group) for k, group in enumerate(groups)})
