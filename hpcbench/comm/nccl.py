"""NCCL communicators for GPU arrays.

The binding is CuPy's (`cupy.cuda.nccl`): CuPy is already used to compile the kernels. CuPy's wheels load NVIDIA's NCCL
wheel, and on AMD GPUs CuPy binds RCCL. `nccl4py` has more functions, which are not needed here, and requires NCCL 2.28.
All calls return immediately and are stream-ordered. All ranks of a communicator must make the calls in the same order.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.types import BFLOAT16
from hpcbench.comm.accelerator import DeviceArray
from hpcbench.errors import UserError

_NUMBERS = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7}
TYPES: dict[np.dtype[Any], int] = {np.dtype(name): number for name, number in _NUMBERS.items()}
TYPES |= {np.dtype(np.float64): 8, BFLOAT16: 9}
"""Values of the enumeration `ncclDataType_t` in nccl.h, which are part of NCCL's ABI."""
OPERATIONS = ((MPI.SUM, 0), (MPI.PROD, 1), (MPI.MAX, 2), (MPI.MIN, 3))
"""Values of the enumeration `ncclRedOp_t` in nccl.h."""


class Communicator(ABC):
    """One rank of an NCCL communicator.

    Attributes
    ----------
    rank, size : int
        Rank of this process, and number of ranks.
    """

    rank: int
    size: int

    @abstractmethod
    def start(self) -> None:
        """Start a group. All calls up to `end` are executed by NCCL as one operation."""

    @abstractmethod
    def end(self) -> None:
        """End the group."""

    @contextmanager
    def group(self) -> Iterator[None]:
        """Execute all calls of the block as one operation."""
        self.start()
        try:
            yield
        finally:
            self.end()

    @abstractmethod
    def send(self, content: DeviceArray, peer: int, stream: int) -> None:
        """Send bytes to a rank. That rank must post the receive in the corresponding group of calls."""

    @abstractmethod
    def receive(self, inbox: DeviceArray, peer: int, stream: int) -> None:
        """Receive bytes from a rank."""

    @abstractmethod
    def all_reduce(self, buf: DeviceArray, op: MPI.Op, stream: int) -> None:
        """Reduce `buf` over the ranks, in place."""

    @abstractmethod
    def reduce_scatter(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        """Sum `src` over the ranks, and write this rank's piece to `dst`. All pieces have the size of `dst`."""

    @abstractmethod
    def all_gather(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        """Concatenate `src` of all ranks in `dst`. All pieces have the same size."""

    @abstractmethod
    def broadcast(self, buf: DeviceArray, root: int, stream: int) -> None:
        """Send `buf` of the root to all ranks."""

    @abstractmethod
    def reduce(self, src: DeviceArray, dst: DeviceArray, root: int, stream: int) -> None:
        """Sum `src` over the ranks into `dst` of the root. On other ranks, `dst` is ignored."""

    @abstractmethod
    def free(self) -> None:
        """Wait for the communicator's work, and free the communicator (a collective call)."""


Connect = Callable[[MPI.Comm], Communicator]
"""A function that creates an NCCL communicator for the ranks of an MPI communicator (a collective call)."""


class CupyCommunicator(Communicator):
    """NCCL communicator based on CuPy, on CuPy's current device.

    Parameters
    ----------
    nccl
        The module `cupy.cuda.nccl`.
    identity
        Unique ID that rank 0 created for this communicator (`get_unique_id`).
    rank, size
        Rank of this process, and number of ranks.
    """

    def __init__(self, nccl: Any, identity: Any, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._nccl = nccl
        self._comm = nccl.NcclCommunicator(size, identity, rank)

    def start(self) -> None:
        """Start a group."""
        self._nccl.groupStart()

    def end(self) -> None:
        """End the group."""
        self._nccl.groupEnd()

    def send(self, content: DeviceArray, peer: int, stream: int) -> None:
        """Send bytes to a rank."""
        self._comm.send(content.pointer, content.nbytes, _BYTES, peer, stream)

    def receive(self, inbox: DeviceArray, peer: int, stream: int) -> None:
        """Receive bytes from a rank."""
        self._comm.recv(inbox.pointer, inbox.nbytes, _BYTES, peer, stream)

    def all_reduce(self, buf: DeviceArray, op: MPI.Op, stream: int) -> None:
        """Reduce `buf` over the ranks, in place."""
        number = find_operation(op)
        self._comm.allReduce(buf.pointer, buf.pointer, buf.size, find_type(buf.dtype), number, stream)

    def reduce_scatter(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        """Sum `src` over the ranks, and write this rank's piece to `dst`."""
        self._comm.reduceScatter(src.pointer, dst.pointer, dst.size, find_type(src.dtype), _SUM, stream)

    def all_gather(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        """Concatenate `src` of all ranks in `dst`."""
        self._comm.allGather(src.pointer, dst.pointer, src.size, find_type(src.dtype), stream)

    def broadcast(self, buf: DeviceArray, root: int, stream: int) -> None:
        """Send `buf` of the root to all ranks."""
        self._comm.broadcast(buf.pointer, buf.pointer, buf.size, find_type(buf.dtype), root, stream)

    def reduce(self, src: DeviceArray, dst: DeviceArray, root: int, stream: int) -> None:
        """Sum `src` over the ranks into `dst` of the root."""
        into = dst.pointer if self.rank == root else 0
        self._comm.reduce(src.pointer, into, src.size, find_type(src.dtype), _SUM, root, stream)

    def free(self) -> None:
        """Free the communicator."""
        self._comm.destroy()


_OLDEST = 22600
"""First version with NCCL_LAUNCH_ORDER_IMPLICIT."""
_BYTES, _SUM = TYPES[np.dtype(np.uint8)], OPERATIONS[0][1]


def find_type(dtype: np.dtype[Any]) -> int:
    """Return NCCL's number for a dtype.

    Raises
    ------
    TypeError
        NCCL does not support this dtype.
    """
    if dtype not in TYPES:
        raise TypeError(f"NCCL does not support {dtype}: convert the values, or use train.transport mpi")
    return TYPES[dtype]


def find_operation(op: MPI.Op) -> int:
    """Return NCCL's number for a reduction.

    Raises
    ------
    ValueError
        NCCL does not support this reduction.
    """
    for operation, number in OPERATIONS:
        if op == operation:
            return number
    raise ValueError("NCCL supports only sum, product, minimum and maximum: use train.transport mpi")


def load() -> Any:
    """Import CuPy's NCCL module.

    Raises
    ------
    UserError
        CuPy or NCCL is missing.
    """
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise UserError(f"train.transport: NCCL requires CuPy, which cannot be imported: {error}") from None
    if not getattr(nccl, "available", False):
        raise UserError(
            "train.transport: CuPy does not find NCCL: install nvidia-nccl-cu12 (CUDA 12) or nvidia-nccl-cu13 "
            "(CUDA 13), or set train.transport to mpi"
        )
    return nccl


def connect(comm: MPI.Comm) -> Communicator:
    """Create the NCCL communicator for the ranks of an MPI communicator (a collective call).

    Raises
    ------
    UserError
        NCCL is missing or too old.
    """
    nccl = load()
    if (version := nccl.get_version()) < _OLDEST:
        raise UserError(
            f"train.transport: with NCCL {version_text(version)}, operations of several communicators may "
            f"deadlock: install NCCL {version_text(_OLDEST)} or later, or set train.transport to mpi"
        )
    # communicators of several groups are in use at once: NCCL runs their operations in the order of the host's calls
    os.environ.setdefault("NCCL_LAUNCH_ORDER_IMPLICIT", "1")
    identity = comm.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
    return CupyCommunicator(nccl, identity, comm.rank, comm.size)


def version_text(number: int) -> str:
    """Format an NCCL version number: 22705 is 2.27.5, and 2708 is 2.7.8."""
    major, remainder = divmod(number, 10_000 if number >= 10_000 else 1_000)
    minor, patch = divmod(remainder, 100)
    return f"{major}.{minor}.{patch}"
