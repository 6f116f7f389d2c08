"""Dtypes, and the loss scale that prevents underflow of fp16 gradients."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hpcbench.codecs.types import BFLOAT16
from hpcbench.contract.training import Train

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Dtype of parameters and activations for each precision setting."""

_MESSAGES = {"fp32": np.dtype(np.float32), "bf16": BFLOAT16, "fp16": np.dtype(np.float16)}


def message_dtypes(train: Train) -> dict[str, np.dtype[Any] | None]:
    """Return the dtype to which messages of each content type are rounded, or None for no rounding."""
    exact = train.sum_format
    return {content: None if name == exact else _MESSAGES[name] for content, name in train.message_formats.items()}


@dataclass
class LossScale:
    """Dynamic loss scale with the rules of DeepSpeed. The defaults are the settings of GPT-NeoX-20B.

    A step with an overflow is skipped. Starting with the `hysteresis`-th overflow, each overflow also halves the scale.
    After `window` steps without overflow, the scale doubles and the overflow count is reset.
    """

    value: float
    window: int = 1000
    """Number of steps without overflow after which the scale doubles. If 0, the scale never changes."""
    hysteresis: int = 2
    smallest: float = 1.0
    _clean: int = 0
    _patience: int = 0

    def __post_init__(self) -> None:
        self._patience = self._patience or self.hysteresis

    @classmethod
    def of(cls, train: Train) -> "LossScale":
        """Create the loss scale of a run. For dtypes other than fp16, the scale is always 1."""
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
