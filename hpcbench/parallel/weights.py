"""The return of updated weights to the ranks that compute with them: copied, or gathered after the step."""

from functools import partial
from typing import Protocol

from torch import Tensor

from hpcbench.comm.policy import Policy
from hpcbench.comm.work import Work
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.buffers import Buffer, from_buffer, room, to_buffer
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.packing import Packing
from hpcbench.parallel.pieces import Piece


class Weights(Protocol):
    """The handling of updated pieces on a stage."""

    def give(self, piece: Piece, source: Tensor) -> None:
        """Set the source of an updated piece: its master weights on the model's device, until the next update."""

    def settle(self) -> None:
        """Finish the transfers after all pieces were given."""


class Replicated:
    """Weights that every rank updates as a whole (stage 0)."""

    def give(self, piece: Piece, source: Tensor) -> None:
        """Copy the master weights to the bucket, unless they lie there already."""
        if not piece.in_place:
            piece.bucket.values.copy_(source)

    def settle(self) -> None:
        """Do nothing: no weights are under way."""


class GatheredAfterStep:
    """Weights that are gathered as soon as pieces are updated, so that every rank has all (stages 1 and 2)."""

    def __init__(self, mesh: Mesh, policy: Policy, *, overlap: bool) -> None:
        self._mesh, self._overlap = mesh, overlap
        self._channel = policy.channel(Dimension.ZERO, Phase.STEP, MessageKind.PARAM)
        self._arriving: list[tuple[Piece, Buffer, Work]] = []

    def give(self, piece: Piece, source: Tensor) -> None:
        """Begin to gather the bucket, in the background if overlap is wanted."""
        source, gathered = to_send(source, piece.bucket, piece.packing)
        group = self._mesh.replicas(piece.bucket.ep)
        tensors = None if piece.packing else partial(piece.bucket.list_message_parts, piece.owned)
        work = group.all_gather(to_buffer(source), gathered, channel=self._channel.describe(tensors))
        work.in_background() if self._overlap else work.wait()
        self._arriving.append((piece, gathered, work))

    def settle(self) -> None:
        """Wait for all buckets, and copy them to the weights."""
        for piece, gathered, work in self._arriving:
            work.wait()
            piece.bucket.values.copy_(arrived(gathered, piece.bucket, piece.packing))
        self._arriving = []


def to_send(source: Tensor, bucket: Bucket, packing: Packing | None) -> tuple[Tensor, Buffer]:
    """Return the message of a rank's piece when a bucket is gathered, and the buffer for all messages."""
    if packing is None:
        return source, bucket.room()
    return packing.pack_own(source), room((packing.elements,), like=bucket.values)


def arrived(gathered: Buffer, bucket: Bucket, packing: Packing | None) -> Tensor:
    """Return the values of a gathered bucket."""
    values = from_buffer(gathered, bucket.values)
    return values if packing is None else packing.unpack(values)
