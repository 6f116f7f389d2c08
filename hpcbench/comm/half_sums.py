"""MPI sums of 16-bit values, with the library's own datatype or with a user-defined operation.

The MPI standard has no half-precision sum that every library supports. MPICH and Open MPI have a float16 datatype, but
may add the values one by one in software. Such sums are ten times slower than float32 sums and would make the
uncompressed baseline too slow. A user-defined operation on 2-byte values works with every library. The operation adds
in float32 and rounds after each addition, like MPI and NCCL.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.library import kernels
from hpcbench.codecs.types import Type
from hpcbench.comm.arrays import Array

LIBRARY, KERNEL = "MPI library's type", "hpcbench's loop as an MPI operation"
_SLOWER = 2.0
"""The library's own datatype is used unless hpcbench's kernel is faster by at least this factor."""
_TRIED = 1 << 15
"""Number of values in the timing comparison."""


class HalfSum(NamedTuple):
    """MPI datatype and operation for a reduction of 16-bit values."""

    datatype: MPI.Datatype
    op: MPI.Op
    whose: str
    """Implementation of the sum: `LIBRARY` or `KERNEL`."""


def agreed(comm: MPI.Comm) -> dict[str, HalfSum]:
    """Choose the sum for each NumPy dtype. All ranks make the same choice (a collective call)."""
    library = _library_sum()
    everyone = np.array(library is not None, dtype=np.int32)
    comm.Allreduce(MPI.IN_PLACE, everyone, MPI.MIN)  # sending an object would need an additional communicator
    half = library if library is not None and everyone else by_kernel("float16")
    return {"float16": half, "bfloat16": by_kernel("bfloat16")}


@functools.cache
def _library_sum() -> HalfSum | None:
    """Return the library's own float16 sum, if it is fast.

    The corresponding bfloat16 call is not safe.
    """
    try:
        datatype = MPI.Datatype.fromcode("e")
        library_s = _seconds(lambda a, b: MPI.SUM.Reduce_local([a, datatype], [b, datatype]))
    except (ValueError, KeyError, MPI.Exception):
        return None
    ours = by_kernel("float16")
    kernel_s = _seconds(lambda a, b: ours.op.Reduce_local([a, ours.datatype], [b, ours.datatype]))
    return HalfSum(datatype, MPI.SUM, LIBRARY) if library_s <= _SLOWER * kernel_s else None


@functools.cache
def by_kernel(name: str) -> HalfSum:
    """Return the sum of ``float16`` or ``bfloat16`` values that uses hpcbench's kernel."""
    kind = Type.F16 if name == "float16" else Type.BF16

    def add(came: Any, total: Any, datatype: MPI.Datatype) -> None:
        kernels().halves.add(kind, came.address, total.address, total.nbytes // 2)

    return HalfSum(MPI.UINT16_T, MPI.Op.Create(add, commute=True), KERNEL)


def _seconds(call: Callable[[Array, Array], None]) -> float:
    a, b = (np.zeros(_TRIED, np.uint16) for _ in range(2))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call(a, b)
        times.append(time.perf_counter() - start)
    return min(times)
