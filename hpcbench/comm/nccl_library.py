"""NCCL's own collectives, enqueued on a stream.

These collectives are the baseline on GPUs. The interface is the same as in `native.Library`.
"""

from collections.abc import Sequence

from mpi4py import MPI

from hpcbench.comm.accelerator import DeviceArray
from hpcbench.comm.nccl import Communicator
from hpcbench.contract.shards import count_elements, cut_evenly


class NcclLibrary:
    """The collectives of one communicator on one stream.

    NCCL's reduce-scatter and all-gather require pieces of the same size. If sizes differ, a group of one reduction per
    rank or a group of messages is used instead.

    Parameters
    ----------
    communicator, stream
        The communicator and the stream.
    """

    def __init__(self, communicator: Communicator, stream: int) -> None:
        self._communicator, self._stream = communicator, stream

    def all_reduce(self, buf: DeviceArray, op: MPI.Op, *, blocking: bool = False) -> None:
        """Reduce `buf` in place."""
        self._communicator.all_reduce(buf, op, self._stream)

    def reduce_scatter(self, src: DeviceArray, dst: DeviceArray, *, blocking: bool = False) -> None:
        """Sum `src` over the ranks. `dst` receives this rank's piece."""
        communicator = self._communicator
        pieces = cut_evenly(src.size, communicator.size)
        if _have_one_size(pieces):
            communicator.reduce_scatter(src, dst, self._stream)
            return
        with communicator.group():
            for root, piece in enumerate(pieces):
                if count_elements(piece):
                    communicator.reduce(src[piece], dst, root, self._stream)

    def all_gather(
        self, src: DeviceArray, dst: DeviceArray, *, pieces: list[slice] | None = None, blocking: bool = False
    ) -> None:
        """Concatenate `src` of all ranks in `dst`. By default, `dst` is cut evenly into the `pieces` of the ranks."""
        communicator = self._communicator
        pieces = pieces or cut_evenly(dst.size, communicator.size)
        if _have_one_size(pieces):
            communicator.all_gather(src, dst, self._stream)
            return
        with communicator.group():
            for peer, piece in enumerate(pieces):
                self._exchange(src, dst[piece], peer)  # includes this rank, so that its piece is copied in stream order

    def broadcast(self, buf: DeviceArray, root: int, *, blocking: bool = False) -> None:
        """Send `buf` of the root to all ranks."""
        self._communicator.broadcast(buf, root, self._stream)

    def reduce(self, src: DeviceArray, dst: DeviceArray, root: int, *, blocking: bool = False) -> None:
        """Sum `src` over the ranks into `dst` of the root."""
        self._communicator.reduce(src, dst, root, self._stream)

    def all_to_all(self, src: DeviceArray, dst: DeviceArray, sends: list[slice], receives: list[slice]) -> None:
        """Send part i of `src` to rank i, and receive the parts of all ranks in `dst`."""
        with self._communicator.group():
            for peer in range(self._communicator.size):
                self._exchange(src[sends[peer]], dst[receives[peer]], peer)

    def _exchange(self, content: DeviceArray, inbox: DeviceArray, peer: int) -> None:
        """Add the messages to and from a rank to the current group. Empty messages are omitted."""
        if content.size:
            self._communicator.send(content, peer, self._stream)
        if inbox.size:
            self._communicator.receive(inbox, peer, self._stream)


def _have_one_size(pieces: Sequence[slice]) -> bool:
    return len({count_elements(piece) for piece in pieces}) == 1
