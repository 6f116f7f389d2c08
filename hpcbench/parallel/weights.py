"""Distribution of updated weights to the ranks that use them: local copies, or gathers after the step."""

from functools import partial
from typing import Protocol

from torch import Tensor

from hpcbench.comm.policy import Policy
from hpcbench.comm.work import Work
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel import differences
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.buffers import Buffer, from_buffer, room, to_buffer, to_tensor
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.packing import Packing
from hpcbench.parallel.pieces import Piece


class Weights(Protocol):
    """Distribution of updated pieces at a ZeRO stage."""

    def give(self, piece: Piece, source: Tensor) -> None:
        """Set the tensor that contains the new values of an updated piece.

        `source` is on the model's device and remains valid until the next update.
        """

    def settle(self) -> None:
        """Finish all transfers after the last call of `give`."""


class Replicated:
    """Weights that every rank updates completely (stage 0)."""

    def give(self, piece: Piece, source: Tensor) -> None:
        """Copy the master weights to the bucket, unless the bucket itself contains the master weights."""
        if not piece.in_place:
            piece.bucket.values.copy_(source)

    def settle(self) -> None:
        """Do nothing, because there are no transfers."""


class GatheredAfterStep:
    """Weights that all ranks gather as soon as the pieces are updated (stages 1 and 2).

    Messages contain the weights, or their differences from the weights of the previous gather.
    """

    def __init__(self, mesh: Mesh, policy: Policy, *, overlap: bool) -> None:
        self._mesh, self._overlap = mesh, overlap
        self._channel = policy.channel(Dimension.ZERO, Phase.STEP, MessageKind.PARAM)
        self._arriving: list[tuple[Piece, Buffer, Work]] = []

    def give(self, piece: Piece, source: Tensor) -> None:
        """Start to gather the bucket, in the background if overlap is enabled."""
        if self._channel.differences:
            source = differences.subtract(source, piece)
        source, gathered = to_send(source, piece.bucket, piece.packing)
        group = self._mesh.replicas(piece.bucket.ep)
        tensors = None if piece.packing else partial(piece.bucket.list_message_parts, piece.owned)
        work = group.all_gather(to_buffer(source), gathered, channel=self._channel.describe(tensors))
        work.in_background() if self._overlap else work.wait()
        self._arriving.append((piece, gathered, work))

    def settle(self) -> None:
        """Wait for all buckets, and copy the gathered values to the weights."""
        for piece, gathered, work in self._arriving:
            work.wait()
            if self._channel.differences:
                changes = to_tensor(gathered)
                differences.add(piece, piece.packing.unpack(changes) if piece.packing else changes)
            else:
                piece.bucket.values.copy_(arrived(gathered, piece.bucket, piece.packing))
        self._arriving = []


def to_send(source: Tensor, bucket: Bucket, packing: Packing | None) -> tuple[Tensor, Buffer]:
    """Return this rank's message for gathering a bucket, and the buffer for all messages."""
    if packing is None:
        return source, bucket.room()
    return packing.pack_own(source), room((packing.elements,), like=bucket.values)


def arrived(gathered: Buffer, bucket: Bucket, packing: Packing | None) -> Tensor:
    """Return the values of a gathered bucket."""
    values = from_buffer(gathered, bucket.values)
    return values if packing is None else packing.unpack(values)
