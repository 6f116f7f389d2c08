"""AdamW (arXiv 1711.05101, algorithm 2) on a flat piece of many parameters.

Written out because PyTorch's own optimizers import its compiler at the first step: a second of CPU time on every rank.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 1 << 17
"""Elements that the optimizer goes through at a time: what it makes of them stays in the cache."""
_ON_DEVICE = 1 << 25
"""Elements of a GPU, which has no such cache and starts each operation anew."""


@dataclass(frozen=True)
class AdamW:
    """Settings."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    """For the elements that decay: matrices, not biases and norms."""


class AdamWState:
    """Moments of one piece.

    Parameters
    ----------
    settings
        Of the optimizer.
    like
        The piece's master weights, [n], fp32 or fp64.
    decays
        The parts of the piece whose weights decay.

    Attributes
    ----------
    updates : int
        Steps taken.
    first, second : Tensor
        Moments of the gradients, [n].
    """

    def __init__(self, settings: AdamW, like: Tensor, decays: Sequence[slice]) -> None:
        self._settings = settings
        self._decays = decays
        self.updates = 0
        self.first = torch.zeros_like(like)
        self.second = torch.zeros_like(like)

    def step(self, master: Tensor, gradient: Tensor, *, lr: float) -> None:
        """Change `master` by one step along `gradient`."""
        self._go(master, gradient, lr=lr, seen=self.updates + 1)

    def add_to_first(self, gradient: Tensor) -> None:
        """Let the first moment take up a gradient."""
        self.first.lerp_(gradient, 1 - self._settings.beta1)

    def apply(self, master: Tensor, *, lr: float, seen: int) -> None:
        """Change `master` by the moments as they are, of which the second has seen so many gradients."""
        self._go(master, None, lr=lr, seen=seen)

    def _go(self, master: Tensor, gradient: Tensor | None, *, lr: float, seen: int) -> None:
        """Decay, take up a gradient if there is one, and change the weights, chunk by chunk."""
        s = self._settings
        self.updates += 1
        for part in self._decays:
            master[part] *= 1 - lr * s.weight_decay
        grown, size = math.sqrt(1 - s.beta2**seen), -lr / (1 - s.beta1**self.updates)
        chunk = CHUNK if master.device.type == "cpu" else _ON_DEVICE
        for i in range(0, len(master), chunk):
            part = slice(i, i + chunk)
            first, second = self.first[part], self.second[part]
            if gradient is not None:
                first.lerp_(gradient[part], 1 - s.beta1)
                second.mul_(s.beta2).addcmul_(gradient[part], gradient[part], value=1 - s.beta2)
            root = second.sqrt().div_(grown).add_(s.eps)
            master[part].addcdiv_(first, root, value=size)
