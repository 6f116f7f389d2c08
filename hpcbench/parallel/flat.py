"""Compiled kernels that process flat host tensors in a single pass over memory.

Separate PyTorch operations would each read the memory again, and the rounding of PyTorch's fused optimizer depends on
the position of an element in the array. The kernels use the same number of threads as PyTorch. The results are bitwise
identical for all numbers of threads and instruction sets.
"""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref

import torch
from torch import Tensor

from hpcbench.codecs.library import AdamWStep, kernels
from hpcbench.codecs.types import Type

TYPES = {torch.float32: Type.F32, torch.float64: Type.F64}
GRAIN = 1 << 18
"""Number of elements that a thread processes at a time (in about a hundred microseconds)."""


def adamw(how: AdamWStep, master: Tensor, gradient: Tensor | None, first: Tensor, second: Tensor) -> None:
    """Take an AdamW step on contiguous tensors, [n], with the settings `how`.

    Without a gradient, the moments do not change.
    """
    step = kernels().flat.adamw
    tensors = (master, gradient, first, second)
    arguments = TYPES[master.dtype], byref(how), *(x.data_ptr() if x is not None else None for x in tensors)
    _each(lambda span: step(*arguments, span.start, span.stop), master.numel())


def squares(x: Tensor) -> float:
    """Sum the squares of `x`, [n], in fp64."""
    add, kind, base, size = kernels().flat.squares, TYPES[x.dtype], x.data_ptr(), x.itemsize
    return sum(_each(lambda span: add(kind, base + size * span.start, len(span)), x.numel()))


def _each(call: Callable[[range], float], n: int) -> Sequence[float]:
    """Divide n elements into grains, apply `call` to each grain, and return the results in order."""
    grains = [range(start, min(start + GRAIN, n)) for start in range(0, n, GRAIN)]
    threads = torch.get_num_threads()
    if threads == 1 or len(grains) < 2:
        return list(map(call, grains))
    return list(_pool(threads).map(call, grains))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="hpcbench-flat")
