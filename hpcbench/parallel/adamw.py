"""AdamW (arXiv 1711.05101, algorithm 2) on a flat piece of many parameters.

PyTorch's own optimizers are not used, because they import its compiler at the first step, which costs a second of CPU
time on every rank.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from hpcbench.codecs.library import AdamWStep
from hpcbench.parallel import flat

CHUNK = 1 << 24
"""Number of elements that a GPU updates at a time, because intermediate results take memory."""


@dataclass(frozen=True)
class AdamW:
    """Settings of AdamW."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    """Weight decay of the elements that decay: matrices, not biases and norms."""


class AdamWState:
    """The moments of one piece.

    Parameters
    ----------
    settings
        Settings of the optimizer.
    like
        The piece's master weights, [n], fp32 or fp64.
    decays
        The parts of the piece whose weights decay, in order.

    Attributes
    ----------
    updates : int
        Number of steps taken.
    first, second : Tensor
        Moments of the gradients, [n].
    """

    def __init__(self, settings: AdamW, like: Tensor, decays: Sequence[slice]) -> None:
        self._settings = settings
        self._decays = decays
        self.updates = 0
        self.first = torch.zeros_like(like)
        self.second = torch.zeros_like(like)

    def step(self, master: Tensor, gradient: Tensor, *, lr: float, factor: float = 1.0) -> None:
        """Change `master` by one step along `factor` times `gradient`."""
        self._go(master, gradient, lr=lr, seen=self.updates + 1, factor=factor)

    def add_to_first(self, gradient: Tensor) -> None:
        """Add a gradient to the first moment."""
        self.first.lerp_(gradient, 1 - self._settings.beta1)

    def apply(self, master: Tensor, *, lr: float, seen: int) -> None:
        """Change `master` by the present moments. The second moment has seen `seen` gradients."""
        self._go(master, None, lr=lr, seen=seen, factor=1.0)

    def _go(self, master: Tensor, gradient: Tensor | None, *, lr: float, seen: int, factor: float) -> None:
        """Decay the weights, add a gradient to the moments if there is one, and change the weights."""
        s = self._settings
        self.updates += 1
        ends = np.array([*chain(*((part.start, part.stop) for part in self._decays)), len(master)], np.uint64)
        how = AdamWStep(
            keep=1 - lr * s.weight_decay,
            factor=factor,
            take1=1 - s.beta1,
            keep2=s.beta2,
            take2=1 - s.beta2,
            grown=1 / math.sqrt(1 - s.beta2**seen),
            eps=s.eps,
            size=lr / (1 - s.beta1**self.updates),
            ends=ends.ctypes.data,
        )
        if master.device.type == "cpu":
            flat.adamw(how, master, gradient, self.first, self.second)
        else:
            self._by_torch(how, master, gradient)

    def _by_torch(self, how: AdamWStep, master: Tensor, gradient: Tensor | None) -> None:
        """Take a step with PyTorch's operations, for a GPU, which kernels/cpu/flat.cpp cannot use."""
        for part in self._decays:
            master[part] *= how.keep
        for i in range(0, len(master), CHUNK):
            part = slice(i, i + CHUNK)
            first, second = self.first[part], self.second[part]
            if gradient is not None:
                taken = gradient[part] * how.factor
                first.lerp_(taken, how.take1)
                second.mul_(how.keep2).addcmul_(taken, taken, value=how.take2)
            root = second.sqrt().mul_(how.grown).add_(how.eps)
            master[part].addcdiv_(first, root, value=-how.size)
