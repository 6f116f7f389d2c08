"""Conversion of host tensors to NumPy arrays that share their memory."""

from typing import Any

import numpy as np
import torch

from hpcbench.codecs.types import BFLOAT16, Array

DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: BFLOAT16,
}
"""Dtypes that are encoded. Values of all other dtypes are sent uncompressed."""
TORCH_TYPES = {dtype: kind for kind, dtype in DTYPES.items()}
"""Inverse of `DTYPES`."""


def array(tensor: torch.Tensor) -> Array:
    """Return a contiguous tensor as a NumPy array that shares its memory."""
    flat = tensor.detach().reshape(-1)
    if flat.dtype is torch.bfloat16:
        return flat.view(torch.int16).numpy().view(BFLOAT16)
    values: Array = flat.numpy()
    return values
