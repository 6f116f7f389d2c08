"""Which is faster within one machine: gloo's own call, or ours? Both are tried, once for each size that is met.

No model answers that: it rests on the number of processors, on how many ranks share them, and on gloo itself, whose
reduce-scatter is an all-reduce of the whole vector. All ranks try at the same time and share the times of the slowest
one. So they all find the same.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Protocol

import torch
from torch._C import _distributed_c10d as c10d

from hpcbench.comm.plan import Operation

MOST_BYTES = 16 << 20
"""Size at which larger vectors are tried."""
_PAIRS = 15
_ENOUGH_S = 0.5
"""Seconds after which no further pair of calls is tried. The first pair is."""
_GAIN = 0.9
"""The largest share of gloo's time at which ours is taken: a smaller gain may be the luck of so few calls."""


class Plain(Protocol):
    """The collectives of a process group, which its C++ code carries out."""

    def allreduce(self, tensors: Any, options: Any = ..., /) -> Any:
        """Begin a sum over the ranks in place."""

    def _reduce_scatter_base(self, out: torch.Tensor, src: torch.Tensor, /) -> Any: ...

    def _allgather_base(self, out: torch.Tensor, src: torch.Tensor, /) -> Any: ...


def tried_size(n: int, width: int, ranks: int) -> int:
    """Elements of the vector whose times tell of vectors of `n`: a power of two for each rank, and not too many."""
    part = 1 << max(0, -(-n // ranks) - 1).bit_length()
    while part > 1 and part * ranks * width > MOST_BYTES:
        part //= 2
    return part * ranks


class Vectors:
    """The values of the tried calls: those that are in both places, as the operation has them.

    Parameters
    ----------
    operation, n, dtype
        What is tried, and with how many elements of which type in the whole vector.
    rank, size
        Number of this rank, and number of ranks.
    """

    def __init__(self, operation: Operation, n: int, dtype: torch.dtype, rank: int, size: int) -> None:
        own = torch.Generator().manual_seed(rank)  # the program's random numbers stay what they are
        first = torch.empty(n).normal_(generator=own).to(dtype)
        part = first[: n // size].clone()
        self._first, self._operation = first, operation
        whole = first.clone()
        self.out = part if operation is Operation.REDUCE_SCATTER else whole
        self.src = part if operation is Operation.ALL_GATHER else whole

    def renew(self) -> None:
        """Give sums in place their first values again: they would grow."""
        if self._operation is Operation.ALL_REDUCE:
            self.out.copy_(self._first)

    def plainly(self, group: Plain) -> Any:
        """Begin the call of the group itself."""
        if self._operation is Operation.ALL_REDUCE:
            return group.allreduce([self.out])
        if self._operation is Operation.REDUCE_SCATTER:
            return group._reduce_scatter_base(self.out, self.src)
        return group._allgather_base(self.out, self.src)


def pays(
    group: Plain,
    plain: Callable[[], Any],
    ours: Callable[[], Any],
    renew: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> bool:
    """Whether our call is faster than the plain one. All ranks ask at the same time, and get the same answer.

    Parameters
    ----------
    group
        Brings the ranks together, and shares their times.
    plain, ours
        Begin a call, and return its handle.
    renew
        Is called before each call.
    clock
        Gives seconds.
    """
    calls = (plain, ours)
    shares: list[float] = []
    spent, pair = 0.0, 0
    while pair <= _PAIRS and (pair < 2 or spent < _ENOUGH_S):
        taken = torch.zeros(2, dtype=torch.float64)
        for which in (0, 1) if pair % 2 else (1, 0):
            renew()
            group.allreduce([torch.zeros(1)]).wait()  # all begin together
            begin = clock()
            calls[which]().wait()
            taken[which] = clock() - begin
        options = c10d.AllreduceOptions()
        options.reduceOp = c10d.ReduceOp(c10d.ReduceOp.MAX)
        group.allreduce([taken], options).wait()
        one, other = taken.tolist()
        spent += one + other
        if pair:  # the first one makes connections and buffers
            shares.append(other / max(one, 1e-9))
        pair += 1
    return median(shares) <= _GAIN
