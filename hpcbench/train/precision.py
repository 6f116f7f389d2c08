"""Number formats, and the loss scale that keeps fp16 gradients from vanishing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hpcbench.codecs.types import BFLOAT16
from hpcbench.contract.training import Train

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Number format of parameters and activations for each precision of a run."""

_MESSAGES = {"fp32": np.dtype(np.float32), "bf16": BFLOAT16, "fp16": np.dtype(np.float16)}


def message_dtypes(train: Train) -> dict[str, np.dtype[Any] | None]:
    """Return the dtype that messages of each content are rounded to; None if they keep the dtype of the sums."""
    exact = train.sum_format
    return {content: None if name == exact else _MESSAGES[name] for content, name in train.message_formats.items()}


@dataclass
class LossScale:
    """The dynamic loss scale, by DeepSpeed's rule. The defaults are the settings of GPT-NeoX-20B.

    A step with an overflow is skipped. From the `hysteresis`-th overflow on, each one also halves the scale. After
    `window` steps without an overflow the scale doubles, and the count of overflows begins again.
    """

    value: float
    window: int = 1000
    """Number of clean steps before the scale doubles; 0 never changes it."""
    hysteresis: int = 2
    smallest: float = 1.0
    _clean: int = 0
    _patience: int = 0

    def __post_init__(self) -> None:
        self._patience = self._patience or self.hysteresis

    @classmethod
    def of(cls, train: Train) -> "LossScale":
        """Return the run's loss scale for fp16. For other formats it is 1 and never changes."""
        if train.precision != "fp16":
            return cls(1.0, window=0)
        return cls(train.loss_scale, window=train.loss_scale_window, hysteresis=train.loss_scale_hysteresis)

    def update(self, *, overflow: bool) -> None:
        """Update the scale after a step."""
        if overflow:
            self._clean = 0
            if self._patience > 1:
                self._patience -= 1
            else:
                self.value = max(self.value / 2, self.smallest)
        else:
            self._clean += 1
            if self.window and self._clean % self.window == 0:
                self._patience = self.hysteresis
                self.value *= 2
