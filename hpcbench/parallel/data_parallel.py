"""Data parallelism: gradients are averaged, weights updated, in whole (stage 0) or each rank its piece (ZeRO-1).

A piece of a bucket is what this rank updates: the whole bucket, or with ZeRO-1 (arXiv 1910.02054, section 5) 1/dp of
it. The optimizer works on a master copy of the piece in fp32 or better; the model's own weights are what the other
ranks can decode, on the owner's rank too, so replicas never differ.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Dimension, Kind, Phase
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.policy import Policy
from hpcbench.comm.shards import shards
from hpcbench.comm.work import Work
from hpcbench.parallel.adamw import AdamW, AdamWState
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.buffers import from_host, to_host
from hpcbench.parallel.exact import exact_sum, square_sum
from hpcbench.parallel.mesh import Mesh


@dataclass
class Piece:
    """What this rank updates of a bucket."""

    bucket: Bucket
    owned: slice
    master: Tensor
    gradient: Tensor
    adam: AdamWState
    feedback: Feedback | None
    """Residuals of the bucket's reduction."""
    to_come: int = 0
    """Gradients that the backward pass has not yet added to the bucket."""
    reduction: "Reduction | None" = None
    """Under way."""


@dataclass
class Reduction:
    """Host arrays of a reduction: what is sent, and where the piece's sum arrives."""

    sent: Array
    result: Array
    work: Work


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
    overlap
        Reduce a bucket as soon as the backward pass has filled it, not after the backward pass.
    """

    def __init__(
        self, buckets: list[Bucket], *, mesh: Mesh, policy: Policy, zero: int, adam: AdamW, overlap: bool = False
    ) -> None:
        self._mesh = mesh
        self._zero = zero
        self._overlap = overlap and mesh.dp.size > 1
        self._exact = policy.exact
        self._gradients = policy.channel(Dimension.DP, Phase.BACKWARD, Kind.GRAD)
        self._parameters = policy.channel(Dimension.ZERO, Phase.STEP, Kind.PARAM)
        self._tied = policy.channel(Dimension.PP, Phase.BACKWARD, Kind.GRAD)
        self._loss_scale = 1.0
        self.pieces = [self._piece(bucket, adam) for bucket in buckets]
        if self._overlap:
            for piece in self.pieces:
                for slot in piece.bucket.slots:
                    slot.parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                        partial(self._added, piece)
                    )

    def _piece(self, bucket: Bucket, adam: AdamW) -> Piece:
        n = bucket.values.numel()
        owned = shards(n, self._mesh.dp.size)[self._mesh.dp.rank] if self._zero else slice(0, n)
        master = bucket.values[owned].to(bucket.wire_dtype, copy=True)
        matrices = [part for slot, part in bucket.parts(owned) if len(slot.shard.shape) > 1]
        feedback = Feedback(n) if self._gradients.feedback and self._mesh.dp.size > 1 else None
        return Piece(bucket, owned, master, torch.zeros_like(master), AdamWState(adam, master, matrices), feedback)

    def begin(self, *, micro_batches: int, loss_scale: float) -> None:
        """Set all gradients to zero; so many backward passes will add to them, of losses times `loss_scale`."""
        self._loss_scale = loss_scale
        for piece in self.pieces:
            piece.bucket.gradients.zero_()
            piece.to_come = micro_batches * len(piece.bucket.slots)

    def _added(self, piece: Piece, parameter: Tensor) -> None:
        """A gradient has been added to: start what is complete, in the same order on every replica."""
        piece.to_come -= 1
        for other in self.pieces:
            if other.bucket.tied or other.reduction:
                continue  # a tied bucket waits for its other copy
            if other.to_come:
                return
            self._start(other)

    def reduce_gradients(self) -> None:
        """Average the replicas' gradients into the pieces; the loss scale is taken out."""
        self._reduce_tied()
        for piece in self.pieces:
            if piece.reduction is None:
                self._start(piece)
            if not self._overlap:
                self._finish(piece)
        for piece in self.pieces:
            if piece.reduction:
                self._finish(piece)

    def _start(self, piece: Piece) -> None:
        """Begin to reduce a bucket.

        Gradients are divided before they are sent: a sum of half-precision codes could overflow, and residuals would
        be of another loss scale than the gradients that they are added to.
        """
        host = to_host(piece.bucket.gradients)
        host /= self._mesh.dp.size * self._loss_scale
        result = to_host(piece.gradient)
        group, channel = self._mesh.dp, self._gradients
        if self._zero:
            work = group.reduce_scatter(host, result, channel=channel, feedback=piece.feedback)
        else:
            work = group.all_reduce(host, channel=channel, feedback=piece.feedback)
        piece.reduction = Reduction(host, result, work.in_background() if self._overlap else work)

    def _finish(self, piece: Piece) -> None:
        reduction, piece.reduction = piece.reduction, None
        assert reduction is not None
        reduction.work.wait()
        if not self._zero:
            reduction.result[...] = reduction.sent
        piece.gradient.copy_(from_host(reduction.result, piece.gradient))
        self._clear_padding(piece)

    @staticmethod
    def _clear_padding(piece: Piece) -> None:
        """A codec of blocks makes something of zeros beside values: no parameter's name would find it again."""
        padding = piece.bucket.padding
        piece.gradient[max(padding.start - piece.owned.start, 0) :] = 0
        if piece.feedback:
            piece.feedback.sent[padding] = 0
            piece.feedback.summed[padding] = 0

    def _reduce_tied(self) -> None:
        """Add the gradients of the two copies of a tied weight."""
        for bucket in (piece.bucket for piece in self.pieces if piece.bucket.tied):
            host = to_host(bucket.gradients)
            self._mesh.ends.all_reduce(host, channel=self._tied).wait()
            bucket.gradients.copy_(from_host(host, bucket.gradients))

    def forget_residuals(self) -> None:
        """After a step whose gradients are thrown away: their residuals belong to nothing any more."""
        for piece in self.pieces:
            if piece.feedback:
                piece.feedback.forget()

    def residuals(self) -> dict[str, dict[str, Tensor]]:
        """Residuals by parameter name, for a checkpoint: ``sent`` and ``summed``, in the parameter's local shape.

        ``sent`` is this rank's own. ``summed`` is zero but where this rank owned the sum: added up over the ranks it is
        whole, and may be loaded by every rank.
        """
        return {
            slot.shard.name: {
                kind: torch.from_numpy(values[slot.span]).view(slot.parameter.shape).clone()
                for kind, values in (("sent", piece.feedback.sent), ("summed", piece.feedback.summed))
            }
            for piece in self.pieces
            if piece.feedback
            for slot in piece.bucket.slots
        }

    def load_residuals(self, saved: dict[str, dict[str, Tensor]]) -> None:
        """Take up residuals that `residuals` gave, whatever buckets the parameters lie in now.

        Raises
        ------
        KeyError
            A parameter of this rank has none.
        """
        for piece in self.pieces:
            if piece.feedback:
                piece.feedback.forget()
                for slot in piece.bucket.slots:
                    for kind, values in (("sent", piece.feedback.sent), ("summed", piece.feedback.summed)):
                        values[slot.span] = saved[slot.shard.name][kind].reshape(-1).numpy()

    @property
    def updates(self) -> int:
        """Steps that the optimizer has taken."""
        return self.pieces[0].adam.updates

    def optimizer(self) -> dict[str, dict[str, Any]]:
        """Master weights and moments by parameter name, for a checkpoint.

        ``master``, ``first`` and ``second`` hold the elements that this rank updates, ``start`` the place of the first
        of them in the parameter's local part, flattened.
        """
        return {
            slot.shard.name: {
                "start": piece.owned.start + part.start - slot.span.start,
                **{name: values[part].to("cpu", copy=True) for name, values in _states(piece).items()},
            }
            for piece in self.pieces
            for slot, part in piece.bucket.parts(piece.owned)
        }

    def load_optimizer(self, saved: dict[str, dict[str, Any]], *, updates: int) -> None:
        """Take up what `optimizer` gave, after so many `updates`, in the same layout.

        Raises
        ------
        KeyError
            A parameter of which this rank updates something has no state.
        ValueError
            It has that of other elements.
        """
        for piece in self.pieces:
            piece.adam.updates = updates
            for slot, part in piece.bucket.parts(piece.owned):
                state = saved[slot.shard.name]
                if state["start"] != piece.owned.start + part.start - slot.span.start:
                    raise ValueError(f"{slot.shard.name}: the optimizer's state begins at element {state['start']}")
                for name, values in _states(piece).items():
                    values[part] = state[name].to(values.device)

    def gradient_norm(self) -> float:
        """2-norm of the whole model's gradient, each parameter counted once; the same bits on every rank."""
        square = 0.0
        if self._zero or self._mesh.dp.rank == 0:
            for piece in self.pieces:
                for slot, part in piece.bucket.parts(piece.owned):
                    if slot.shard.counts_in_norm:
                        square += square_sum(piece.gradient[part])
        (total,) = exact_sum(self._mesh.world, [square], self._exact)
        return math.sqrt(total) if math.isfinite(total) else math.nan

    def step(self, *, lr: float, clip: float, norm: float) -> None:
        """Update the pieces with gradients clipped to norm `clip`, then give every replica the new weights."""
        factor = clip / norm if 0 < clip < norm else 1.0
        gathers = []
        for piece in self.pieces:
            if factor != 1.0:
                piece.gradient *= factor
            piece.adam.step(piece.master, piece.gradient, lr=lr)
            if not self._zero:
                piece.bucket.values.copy_(piece.master)
                continue
            gathered = to_host(torch.empty(piece.bucket.values.numel(), dtype=piece.bucket.wire_dtype))
            work = self._mesh.dp.all_gather(to_host(piece.master), gathered, channel=self._parameters)
            work.in_background() if self._overlap else work.wait()
            gathers.append((piece.bucket.values, gathered, work))
        for values, gathered, work in gathers:
            work.wait()
            values.copy_(from_host(gathered, values))


def _states(piece: Piece) -> dict[str, Tensor]:
    return {"master": piece.master, "first": piece.adam.first, "second": piece.adam.second}
