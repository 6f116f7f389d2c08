"""Timing trials that compare gloo's call with the encoded call within one machine.

Each size is tried once. The result is hard to model, because it depends on the number of processors, on the number of
ranks per processor, and on gloo itself, whose reduce-scatter is an all-reduce of the complete vector. All ranks run the
trial at the same time and use the times of the slowest rank, so all ranks get the same result.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Protocol

import torch
from torch._C import _distributed_c10d as c10d

from hpcbench.comm.plan import Operation

MOST_BYTES = 16 << 20
"""Maximum trial size in bytes. The result also applies to larger vectors."""
_PAIRS = 15
_ENOUGH_S = 0.5
"""Time in seconds after which no further pair of calls is timed.

At least two pairs are timed, because the first pair is a warm-up.
"""
_GAIN = 0.9
"""Calls are encoded if their time divided by gloo's time is at most this ratio.

With so few calls, smaller gains may be noise.
"""


class Plain(Protocol):
    """Collectives of gloo's backend, without PyTorch's dispatcher."""

    def allreduce(self, tensors: Any, options: Any = ..., /) -> Any:
        """Start an in-place sum over the ranks."""

    def _reduce_scatter_base(self, out: torch.Tensor, src: torch.Tensor, /) -> Any: ...

    def _allgather_base(self, out: torch.Tensor, src: torch.Tensor, /) -> Any: ...


def tried_size(n: int, width: int, ranks: int) -> int:
    """Return the trial size for vectors of `n` elements: a power of two, multiplied by the number of ranks."""
    part = 1 << max(0, -(-n // ranks) - 1).bit_length()
    while part > 1 and part * ranks * width > MOST_BYTES:
        part //= 2
    return part * ranks


class Vectors:
    """Target and source of a trial's calls.

    Parameters
    ----------
    operation
        Operation to try.
    n, dtype
        Element count of the complete vector, and dtype.
    rank, size
        Rank of this process, and number of ranks.
    """

    def __init__(self, operation: Operation, n: int, dtype: torch.dtype, rank: int, size: int) -> None:
        generator = torch.Generator().manual_seed(rank)  # leaves the program's random state unchanged
        first = torch.empty(n).normal_(generator=generator).to(dtype)
        part = first[: n // size].clone()
        self._first, self._operation = first, operation
        vector = first.clone()
        self.out = part if operation is Operation.REDUCE_SCATTER else vector
        self.src = part if operation is Operation.ALL_GATHER else vector

    def renew(self) -> None:
        """Reset in-place sums to their initial values, because repeated sums would grow."""
        if self._operation is Operation.ALL_REDUCE:
            self.out.copy_(self._first)

    def begin_plain(self, group: Plain) -> Any:
        """Start gloo's own call and return its handle."""
        if self._operation is Operation.ALL_REDUCE:
            return group.allreduce([self.out])
        if self._operation is Operation.REDUCE_SCATTER:
            return group._reduce_scatter_base(self.out, self.src)
        return group._allgather_base(self.out, self.src)


def is_faster(
    group: Plain,
    plain: Callable[[], Any],
    encoded: Callable[[], Any],
    renew: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> bool:
    """Return whether the encoded call is faster than gloo's own call.

    All ranks must call this function. The function blocks until all ranks have called it, and returns the same result
    on all ranks.

    Parameters
    ----------
    group
        Group that synchronizes the ranks and exchanges their times.
    plain, encoded
        Functions that start a call and return its handle.
    renew
        Function that resets the values before each call.
    clock
        Function that returns the time in seconds.
    """
    calls = (plain, encoded)
    ratios: list[float] = []
    spent_s, pair = 0.0, 0
    while pair <= _PAIRS and (pair < 2 or spent_s < _ENOUGH_S):
        seconds = torch.zeros(2, dtype=torch.float64)
        for k in (0, 1) if pair % 2 else (1, 0):
            renew()
            group.allreduce([torch.zeros(1)]).wait()  # synchronizes the ranks
            begin = clock()
            calls[k]().wait()
            seconds[k] = clock() - begin
        options = c10d.AllreduceOptions()
        options.reduceOp = c10d.ReduceOp(c10d.ReduceOp.MAX)
        group.allreduce([seconds], options).wait()
        plain_s, encoded_s = seconds.tolist()
        spent_s += plain_s + encoded_s
        if pair:  # the first pair also creates connections and buffers
            ratios.append(encoded_s / max(plain_s, 1e-9))
        pair += 1
    return median(ratios) <= _GAIN
