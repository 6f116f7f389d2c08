"""NCCL's communicators on arrays of a GPU.

The binding is CuPy's (`cupy.cuda.nccl`): CuPy already compiles the kernels, its wheels load NVIDIA's NCCL wheel, and on
AMD it binds RCCL. `nccl4py` has more functions and needs NCCL 2.28; nothing here uses them. All calls return at once
and are ordered on a stream. All ranks of a communicator make them in the same order.
"""

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
"""Numbers of the types in nccl.h (`ncclDataType_t`), which are part of its binary interface."""
OPERATIONS = ((MPI.SUM, 0), (MPI.PROD, 1), (MPI.MAX, 2), (MPI.MIN, 3))
"""Numbers of the reductions in nccl.h (`ncclRedOp_t`)."""


class Communicator(ABC):
    """One rank of an NCCL communicator.

    Attributes
    ----------
    rank, size : int
        Number of the rank, and number of ranks.
    """

    rank: int
    size: int

    @abstractmethod
    def start(self) -> None:
        """Start a group: NCCL carries out the calls up to `end` as one operation."""

    @abstractmethod
    def end(self) -> None:
        """End the group."""

    @contextmanager
    def group(self) -> Iterator[None]:
        """Carry out the calls of the block as one operation."""
        self.start()
        try:
            yield
        finally:
            self.end()

    @abstractmethod
    def send(self, content: DeviceArray, peer: int, stream: int) -> None:
        """Send bytes to a rank, which receives them in a group of the same place in the order."""

    @abstractmethod
    def receive(self, inbox: DeviceArray, peer: int, stream: int) -> None:
        """Receive bytes of a rank."""

    @abstractmethod
    def all_reduce(self, buf: DeviceArray, op: MPI.Op, stream: int) -> None:
        """Reduce over the ranks, in place."""

    @abstractmethod
    def reduce_scatter(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        """Sum over the ranks, and write this rank's piece to `dst`. All pieces have the size of `dst`."""

    @abstractmethod
    def all_gather(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        """Join `src` of all ranks in `dst`. All pieces have the same size."""

    @abstractmethod
    def broadcast(self, buf: DeviceArray, root: int, stream: int) -> None:
        """Send `buf` of the root to all ranks."""

    @abstractmethod
    def reduce(self, src: DeviceArray, dst: DeviceArray, root: int, stream: int) -> None:
        """Sum `src` over the ranks into `dst` of the root. The `dst` of other ranks is not used."""

    @abstractmethod
    def free(self) -> None:
        """Wait for the communicator's work, and free it (a collective call)."""


Connect = Callable[[MPI.Comm], Communicator]
"""A function that makes the communicator of the ranks of an MPI communicator (a collective call)."""


class CupyCommunicator(Communicator):
    """NCCL's communicator through CuPy, on CuPy's current device.

    Parameters
    ----------
    nccl
        The module `cupy.cuda.nccl`.
    identity
        Number that rank 0 made for this communicator (`get_unique_id`).
    rank, size
        Number of the rank, and number of ranks.
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
        """Receive bytes of a rank."""
        self._comm.recv(inbox.pointer, inbox.nbytes, _BYTES, peer, stream)

    def all_reduce(self, buf: DeviceArray, op: MPI.Op, stream: int) -> None:
        """Reduce over the ranks, in place."""
        number = find_operation(op)
        self._comm.allReduce(buf.pointer, buf.pointer, buf.size, find_type(buf.dtype), number, stream)

    def reduce_scatter(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        """Sum over the ranks, and write this rank's piece to `dst`."""
        self._comm.reduceScatter(src.pointer, dst.pointer, dst.size, find_type(src.dtype), _SUM, stream)

    def all_gather(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        """Join `src` of all ranks in `dst`."""
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


_BYTES, _SUM = TYPES[np.dtype(np.uint8)], OPERATIONS[0][1]


def find_type(dtype: np.dtype[Any]) -> int:
    """Return NCCL's number of a type.

    Raises
    ------
    TypeError
        NCCL has no such type.
    """
    if dtype not in TYPES:
        raise TypeError(f"NCCL has no type for {dtype}: convert the values, or use train.transport mpi")
    return TYPES[dtype]


def find_operation(op: MPI.Op) -> int:
    """Return NCCL's number of a reduction.

    Raises
    ------
    ValueError
        NCCL has no such reduction.
    """
    for operation, number in OPERATIONS:
        if op == operation:
            return number
    raise ValueError("NCCL reduces by sum, product, minimum and maximum only: use train.transport mpi")


def load() -> Any:
    """Return CuPy's module of NCCL.

    Raises
    ------
    UserError
        CuPy or NCCL is missing.
    """
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise UserError(f"train.transport: NCCL is used through CuPy, and that fails: {error}") from None
    if not getattr(nccl, "available", False):
        raise UserError(
            "train.transport: CuPy finds no NCCL: install nvidia-nccl-cu12 (CUDA 12) or nvidia-nccl-cu13 (CUDA 13), or "
            "set train.transport to mpi"
        )
    return nccl


def connect(comm: MPI.Comm) -> Communicator:
    """Make the NCCL communicator of the ranks of an MPI communicator (a collective call)."""
    nccl = load()
    identity = comm.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
    return CupyCommunicator(nccl, identity, comm.rank, comm.size)


def version_text(number: int) -> str:
    """Return a version of NCCL as it is written, from its number: 22705 is 2.27.5, and 2708 is 2.7.8."""
    major, remainder = divmod(number, 10_000 if number >= 10_000 else 1_000)
    minor, patch = divmod(remainder, 100)
    return f"{major}.{minor}.{patch}"
