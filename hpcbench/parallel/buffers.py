"""Between tensors and the host arrays that groups send.

Reductions and codecs work in fp32 (fp64 where the model does): MPI has no bf16 sum, and a half-precision sum over
ranks would round at each addition.
"""

import torch
from torch import Tensor

from hpcbench.comm.arrays import Array


def wire_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which tensors of `dtype` are communicated."""
    return torch.promote_types(dtype, torch.float32)


def to_host(x: Tensor) -> Array:
    """A contiguous host array with the values of `x` in its wire dtype; shares memory with `x` where it can."""
    array: Array = x.detach().to(device="cpu", dtype=wire_dtype(x.dtype)).contiguous().numpy()
    return array


def from_host(array: Array, like: Tensor) -> Tensor:
    """A tensor with the values of `array`, in dtype and on the device of `like`."""
    return torch.from_numpy(array).to(device=like.device, dtype=like.dtype)
