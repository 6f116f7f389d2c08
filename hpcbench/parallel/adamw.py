"""AdamW (arXiv 1711.05101, algorithm 2) on flat pieces that contain many parameters.

PyTorch's own optimizers are not used: at the first step, they import the compiler, which takes a second of CPU time on
every rank.
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
"""Number of elements that a GPU updates at a time. The limit bounds the memory of intermediate results."""


@dataclass(frozen=True)
class AdamW:
    """Settings of AdamW."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    """Weight decay of matrices. Biases and norms have no weight decay."""


class AdamWState:
    """Optimizer state of one piece.

    Parameters
    ----------
    settings
        Settings of the optimizer.
    like
        Master weights of the piece, [n], fp32 or fp64.
    decays
        Slices of the piece whose weights decay, in ascending order.

    Attributes
    ----------
    updates : int
        Number of optimizer steps.
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
        """Update `master` with `factor` times `gradient`."""
        self._go(master, gradient, lr=lr, seen=self.updates + 1, factor=factor)

    def add_to_first(self, gradient: Tensor) -> None:
        """Add a gradient to the first moment."""
        self.first.lerp_(gradient, 1 - self._settings.beta1)

    def apply(self, master: Tensor, *, lr: float, seen: int) -> None:
        """Update `master` with the current moments. `seen` is the number of gradients in the second moment."""
        self._go(master, None, lr=lr, seen=seen, factor=1.0)

    def _go(self, master: Tensor, gradient: Tensor | None, *, lr: float, seen: int, factor: float) -> None:
        """Decay the weights, add the gradient (unless it is None) to the moments, and update the weights."""
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
        """Take a step with PyTorch operations on a GPU, where kernels/cpu/flat.cpp cannot run."""
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
