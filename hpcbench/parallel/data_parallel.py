"""Data parallelism: gradients are averaged, weights updated, in whole (stage 0) or each rank its piece (ZeRO-1).

A piece of a bucket is what this rank updates: the whole bucket, or with ZeRO-1 (arXiv 1910.02054, section 5) 1/dp of
it. The optimizer works on a master copy of the piece in fp32 or better; the model's own weights are what the other
ranks can decode, on the owner's rank too, so replicas never differ.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hpcbench.comm.channel import Dimension, Kind, Phase
from hpcbench.comm.policy import Policy
from hpcbench.comm.shards import shards
from hpcbench.parallel.adamw import AdamW, AdamWState
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.buffers import from_host, to_host
from hpcbench.parallel.exact import exact_sum
from hpcbench.parallel.mesh import Mesh


@dataclass
class Piece:
    """What this rank updates of a bucket."""

    bucket: Bucket
    owned: slice
    master: Tensor
    gradient: Tensor
    adam: AdamWState


class DataParallel:
    """Reduces gradients and updates weights.

    Parameters
    ----------
    buckets
        Of this rank's stage and tensor-parallel part.
    mesh
        Its ``dp`` group holds the replicas.
    policy
        Gives the channels of gradients (DP) and of gathered parameters (ZERO).
    zero
        Stage 0 or 1.
    adam
        Settings of the optimizer.
    """

    def __init__(self, buckets: list[Bucket], *, mesh: Mesh, policy: Policy, zero: int, adam: AdamW) -> None:
        self._mesh = mesh
        self._zero = zero
        self._exact = policy.exact
        self._gradients = policy.channel(Dimension.DP, Phase.BACKWARD, Kind.GRAD)
        self._parameters = policy.channel(Dimension.ZERO, Phase.STEP, Kind.PARAM)
        self._tied = policy.channel(Dimension.PP, Phase.BACKWARD, Kind.GRAD)
        self.pieces = [self._piece(bucket, adam) for bucket in buckets]

    def _piece(self, bucket: Bucket, adam: AdamW) -> Piece:
        n = bucket.values.numel()
        owned = shards(n, self._mesh.dp.size)[self._mesh.dp.rank] if self._zero else slice(0, n)
        master = bucket.values[owned].to(bucket.wire_dtype, copy=True)
        matrices = [part for slot, part in bucket.parts(owned) if len(slot.shard.shape) > 1]
        return Piece(bucket, owned, master, torch.zeros_like(master), AdamWState(adam, master, matrices))

    def clear_gradients(self) -> None:
        """Set all gradients to zero."""
        for piece in self.pieces:
            piece.bucket.gradients.zero_()

    def reduce_gradients(self, *, loss_scale: float) -> None:
        """Average the replicas' gradients into the pieces and take the loss scale out.

        They are divided before they are sent: a sum of half-precision codes could overflow.
        """
        self._reduce_tied()
        for piece in self.pieces:
            host = to_host(piece.bucket.gradients)
            host /= self._mesh.dp.size
            reduced = to_host(piece.gradient)
            if self._zero:
                self._mesh.dp.reduce_scatter(host, reduced, channel=self._gradients).wait()
            else:
                self._mesh.dp.all_reduce(host, channel=self._gradients).wait()
                reduced[...] = host
            piece.gradient.copy_(from_host(reduced, piece.gradient))
            if loss_scale != 1.0:
                piece.gradient /= loss_scale

    def _reduce_tied(self) -> None:
        """Add the gradients of the two copies of a tied weight."""
        for bucket in (piece.bucket for piece in self.pieces if piece.bucket.tied):
            host = to_host(bucket.gradients)
            self._mesh.ends.all_reduce(host, channel=self._tied).wait()
            bucket.gradients.copy_(from_host(host, bucket.gradients))

    def gradient_norm(self) -> float:
        """2-norm of the whole model's gradient, each parameter counted once; the same bits on every rank."""
        square = 0.0
        if self._zero or self._mesh.dp.rank == 0:
            for piece in self.pieces:
                for slot, part in piece.bucket.parts(piece.owned):
                    if slot.shard.counts_in_norm:
                        square += float(piece.gradient[part].double().square().sum())
        (total,) = exact_sum(self._mesh.world, [square], self._exact)
        return math.sqrt(total) if math.isfinite(total) else math.nan

    def step(self, *, lr: float, clip: float, norm: float) -> None:
        """Update the pieces with gradients clipped to norm `clip`, then give every replica the new weights."""
        factor = clip / norm if 0 < clip < norm else 1.0
        for piece in self.pieces:
            if factor != 1.0:
                piece.gradient *= factor
            piece.adam.step(piece.master, piece.gradient, lr=lr)
            self._publish(piece)

    def _publish(self, piece: Piece) -> None:
        values = piece.bucket.values
        if not self._zero:
            values.copy_(piece.master)
            return
        gathered = to_host(torch.empty(values.numel(), dtype=piece.bucket.wire_dtype))
        self._mesh.dp.all_gather(to_host(piece.master), gathered, channel=self._parameters).wait()
        values.copy_(from_host(gathered, values))
