"""Conversions between tensors and communication buffers.

In host memory, a buffer is a NumPy array. On a GPU, a buffer is a tensor. Groups encode and sum tensors on the device,
so only wire bytes pass through the host. Both kinds support the same operators.

Reductions and codecs work in fp32 (in fp64 for fp64 models). MPI does not define a bf16 sum, and a half-precision sum
over ranks would round at each addition.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hpcbench.comm.arrays import Array
from hpcbench.comm.feedback import Feedback

Buffer = Any
"""Contiguous buffer: a NumPy array in host memory, or a torch tensor on a GPU."""


def on_device(x: Tensor) -> bool:
    """Return whether a tensor is in GPU memory."""
    return x.device.type != "cpu"


def wire_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which tensors of `dtype` are communicated."""
    return torch.promote_types(dtype, torch.float32)


def to_buffer(x: Tensor) -> Buffer:
    """Return the values of `x` in its wire dtype. If possible, the buffer shares the memory of `x`."""
    values = x.detach().to(wire_dtype(x.dtype)).contiguous()
    return values if on_device(x) else values.numpy()


def room(shape: Sequence[int], like: Tensor) -> Buffer:
    """Allocate a buffer of this shape, in the wire dtype and on the device of `like`."""
    return to_buffer(torch.empty(shape, dtype=wire_dtype(like.dtype), device=like.device))


def to_tensor(buffer: Buffer) -> Tensor:
    """Return a tensor that shares the memory of a buffer."""
    return buffer if isinstance(buffer, Tensor) else torch.from_numpy(buffer)


def from_buffer(buffer: Buffer, like: Tensor) -> Tensor:
    """Convert a buffer to a tensor with the dtype and the device of `like`."""
    return to_tensor(buffer).to(device=like.device, dtype=like.dtype)


def residuals(n: int, like: Tensor, *, sums: bool = True) -> Feedback:
    """Allocate residuals for `n` values on the device of `like`. Point-to-point messages need no residuals of sums."""
    return Feedback(n, like if on_device(like) else None, sums=sums)


def to_host(x: Tensor) -> Array:
    """Copy `x` from any device to a contiguous host array in its wire dtype."""
    array: Array = x.detach().to(device="cpu", dtype=wire_dtype(x.dtype)).contiguous().numpy()
    return array
