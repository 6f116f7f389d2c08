"""Data parallelism. Gradients are averaged, and each rank updates all weights or only its own piece.

A ZeRO stage (arXiv 1910.02054) determines three things: the elements that a rank owns (`pieces`), the reduction of
gradients (`gradients`), and the distribution of updated weights (`weights`, `on_demand`).

====== ============ ============================ =============================
stage  owned        gradients                    weights
====== ============ ============================ =============================
0      all          all-reduced each step        all on every rank
1      1/dp         reduce-scattered each step   gathered after the step
2      1/dp         same, each micro-batch       gathered after the step
3      1/dp         same, each micro-batch       gathered before they are used
====== ============ ============================ =============================
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from hpcbench.comm.policy import Policy
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel import pieces as states
from hpcbench.parallel.adamw import AdamW
from hpcbench.parallel.buckets import Bucket, Slot
from hpcbench.parallel.buffers import Buffer, to_buffer
from hpcbench.parallel.exact import exact_sum, square_sum
from hpcbench.parallel.gradients import Gradients, divide
from hpcbench.parallel.masking import MakeMasking
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.offload import Crossing, HostLink
from hpcbench.parallel.on_demand import OnDemand
from hpcbench.parallel.pieces import Owned, Piece, make_piece
from hpcbench.parallel.sparse.reduction import ByRows
from hpcbench.parallel.sparse.touched import Touched
from hpcbench.parallel.weights import GatheredAfterStep, Replicated, Weights


class DataParallel:
    """Engine of data parallelism, which reduces gradients and updates weights.

    Parameters
    ----------
    buckets
        Buckets of this rank's pipeline stage and tensor-parallel part.
    mesh
        Mesh whose ``dp`` group contains the replicas. For experts, the replicas are the group `Mesh.replicas`.
    policy
        Policy that provides the channels of gradients (DP) and of gathered parameters (ZERO).
    zero
        ZeRO stage, 0 to 3.
    adam
        Settings of the optimizer.
    overlap
        Whether a bucket is reduced as soon as the backward pass has filled the bucket. At stage 3, weights are also
        gathered ahead of their use.
    stacks
        Modules that use the parameters (needed only at stage 3).
    node_copy
        Whether stage 3 gathers weights for the backward pass from a second copy within each node (hpZ of ZeRO++).
    masks
        Function that creates the masks of sparse weights for the pieces, or None if weights are dense.
    offload
        Whether master weights, moments and reduced gradients are kept in host memory and updated there.
    touched
        Record of the touched rows, for an embedding table whose gradient may be sent as rows.
    always_by_rows
        Whether the embedding gradient is sent as rows even if rows take more bytes.

    Attributes
    ----------
    pieces : list of Piece
        Pieces that this rank owns.
    link : HostLink or None
        Link to the host memory, or None if nothing is offloaded.
    """

    def __init__(
        self,
        buckets: Iterable[Bucket],
        *,
        mesh: Mesh,
        policy: Policy,
        zero: int,
        adam: AdamW,
        overlap: bool = False,
        stacks: Sequence[nn.Module] = (),
        node_copy: bool = False,
        offload: bool = False,
        touched: Touched | None = None,
        always_by_rows: bool = False,
        masks: MakeMasking | None = None,
    ) -> None:
        self._mesh = mesh
        self._scattered = zero > 0
        self._exact = policy.exact
        overlap = overlap and mesh.dp.size > 1
        self.link: HostLink | None = None
        self._channel = policy.channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
        feedback = any(treatment.keeps_errors for treatment in policy.treatments(self._channel))
        self.pieces: list[Piece] = []
        for bucket in buckets:  # frees the values that are not owned before the next bucket is created
            if offload and self.link is None:
                self.link = HostLink(bucket.values.device)
            group = mesh.replicas(bucket.ep)
            piece = make_piece(
                bucket,
                adam,
                part=group.rank if self._scattered else 0,
                parts=group.size if self._scattered else 1,
                feedback=feedback and group.size > 1,
                link=self.link,
                in_place=not self._scattered,
            )
            self.pieces.append(piece)
            if zero >= 2:
                bucket.free_gradients()
            if zero == 3:
                bucket.free_values()
        self.masks = masks(self.pieces, self._scattered) if masks else None
        self._weights: Weights
        self._on_demand: OnDemand | None = None
        if zero == 0:
            self._weights = Replicated()
        elif zero < 3:
            self._weights = GatheredAfterStep(mesh, policy, overlap=overlap)
        else:
            self._weights = self._on_demand = OnDemand(
                self.pieces, stacks, mesh=mesh, policy=policy, overlap=overlap, node_copy=node_copy
            )
            self._give_again()
        self._gradients = Gradients(
            self.pieces,
            mesh=mesh,
            policy=policy,
            scattered=self._scattered,
            freed=zero >= 2,
            overlap=overlap,
            link=self.link,
            whole=self._on_demand.release if self._on_demand else None,
            touched=touched,
            always=always_by_rows,
        )

    def follow_changes(self, policy: Policy) -> None:
        """Discard the residuals if gradients are treated differently in this step than in the previous step.

        Otherwise, a message could include errors from a much earlier step or from another codec.
        """
        if policy.has_changed(self._channel):
            self.forget_residuals()

    def begin(self, *, micro_batches: int, loss_scale: float) -> None:
        """Set all gradients to zero.

        Afterwards, the caller runs the backward passes of `micro_batches` micro-batches, with the loss multiplied by
        `loss_scale`.
        """
        if self._gradients.averaged_errors.is_due(self.updates):
            self.forget_residuals()
        self._gradients.begin(micro_batches=micro_batches, loss_scale=loss_scale)

    def reduce_gradients(self) -> None:
        """Average the gradients of the replicas into the pieces and remove the loss scale."""
        self._gradients.finish()

    @property
    def by_rows(self) -> ByRows | None:
        """Reduction of an embedding gradient as rows, or None if there is no such gradient or no other replica."""
        return self._gradients.by_rows

    def keep_gradients(self) -> None:
        """Stop reducing gradients. Afterwards, `own_gradients` returns the gradients of this replica."""
        self._gradients.averaged = False

    def own_gradients(self, *, divisor: float) -> list[Buffer]:
        """Return this replica's gradients of each bucket, divided by `divisor`.

        The next backward pass overwrites the returned buffers.
        """
        vectors = []
        for piece in self.pieces:
            if piece.to_come:
                piece.bucket.clear_missing()
            vector = to_buffer(piece.bucket.gradients)
            divide(vector, divisor)
            vectors.append(vector)
        return vectors

    def gradient_norm(self) -> float | None:
        """Return the 2-norm of the gradient of the whole model.

        Each parameter is counted once, and the result is bitwise identical on all ranks. The norm is NaN if a gradient
        is not finite. The norm is None if all gradients are finite but no rank has the mean gradient.
        """
        return self._world_norm(self.gradient_square())

    def gradient_square(self) -> float:
        """Return this rank's contribution to the squared gradient norm. The contributions of all ranks are summed."""
        return self._square(self._own)

    @property
    def _own(self) -> list[Piece]:
        """Return the pieces that this rank adds to the global gradient norm."""
        return [piece for piece in self.pieces if self.counts(piece)]

    def counts(self, piece: Piece) -> bool:
        """Return whether this rank adds the piece to sums over the whole model, such as the gradient norm."""
        return self._scattered or self._mesh.replicas(piece.bucket.ep).rank == 0

    def _square(self, pieces: Sequence[Piece]) -> float:
        """Sum the squared gradients of the pieces. Elements that another rank counts are excluded."""
        return sum(square_sum(piece.gradient[part]) for piece in pieces for part in piece.counted())

    def _world_norm(self, square: float) -> float:
        (total,) = exact_sum(self._mesh.world, [square], self._exact)
        return math.sqrt(total) if math.isfinite(total) else math.nan

    def step(self, *, lr: float, clip: float, norm: float | None) -> None:
        """Update the pieces with gradients clipped to norm `clip`, and distribute the new weights to all replicas."""
        factor = clip / norm if norm is not None and 0 < clip < norm else 1.0
        for piece, source in self._updated(lr, factor):
            self._weights.give(piece, source)
        self._weights.settle()

    def distribute_weights(self) -> None:
        """Distribute the current master weights again, as after an update (a collective call)."""
        for piece in self.pieces:
            self._weights.give(piece, self._on_device(piece))
        self._weights.settle()

    def _updated(self, lr: float, factor: float) -> Iterator[tuple[Piece, Tensor]]:
        """Update piece by piece. Offloaded master weights are copied to the device while the next piece is updated."""
        if self.masks and self.masks.is_due(self.updates + 1):  # the masks depend on all updated weights
            for piece in self.pieces:
                piece.adam.step(piece.master, piece.gradient, lr=lr, factor=factor)
            self.masks.renew(self.updates)
            yield from ((piece, self._on_device(piece)) for piece in self.pieces)
            return
        crossing: tuple[Piece, Crossing] | None = None
        for piece in self.pieces:
            piece.adam.step(piece.master, piece.gradient, lr=lr, factor=factor)
            if self.masks:
                self.masks.apply(piece)
            if self.link is None:
                yield piece, piece.master
                continue
            if crossing:
                yield crossing[0], crossing[1].wait()
            crossing = piece, self.link.up(piece.master)
        if crossing:
            yield crossing[0], crossing[1].wait()

    def weights(self) -> Iterator[tuple[Slot, Tensor]]:
        """Yield all weights of this rank's pipeline stage and tensor-parallel part.

        At stage 3, each bucket requires a collective call, so every replica must exhaust the iterator.
        """
        if self._on_demand:
            yield from self._on_demand.weights()
            return
        for piece in self.pieces:
            for slot in piece.bucket.slots:
                yield slot, slot.parameter.detach()

    def held_weights(self) -> dict[str, dict[str, Any]]:
        """Return the weights that the rank keeps between steps (at stage 3 only its pieces), keyed by parameter name.

        ``values`` contains the flattened values in the dtype of the model. ``start`` is the offset of the first value
        in the local part of the parameter.
        """
        if self._on_demand:
            return states.save_weights(self.pieces)
        return {
            slot.shard.name: {"start": 0, "values": values.to("cpu", copy=True).view(-1)}
            for slot, values in self.weights()
        }

    def load_weights(self, saved: dict[str, dict[str, Any]]) -> None:
        """Load saved `held_weights` of the same layout. At stage 3, the weights come from the optimizer state.

        Raises
        ------
        KeyError
            The saved weights of a parameter are missing.
        """
        if not self._on_demand:
            for slot, values in self.weights():
                values.view(-1).copy_(saved[slot.shard.name]["values"])

    @property
    def owned(self) -> list[Owned]:
        """Elements that this rank updates."""
        return [owned for piece in self.pieces for _, _, owned in piece.parts()]

    @property
    def updates(self) -> int:
        """Number of optimizer steps."""
        return self.pieces[0].adam.updates

    def optimizer(self) -> dict[str, dict[str, Any]]:
        """Return master weights, moments and masks, keyed by parameter name (see `pieces.save` and `Masking.save`)."""
        saved = states.save(self.pieces)
        for name, mask in self.masks.save().items() if self.masks else ():
            saved[name]["mask"] = mask
        return saved

    def load_optimizer(self, saved: dict[str, dict[str, Any]], *, updates: int) -> None:
        """Load an `optimizer` state that was saved in the same layout after `updates` steps (see `pieces.load`)."""
        states.load(self.pieces, saved, updates=updates)
        if self.masks:
            self.masks.load({name: entry["mask"] for name, entry in saved.items() if "mask" in entry})
        self._give_again()

    def residuals(self) -> dict[str, dict[str, Tensor]]:
        """Return the residuals for a checkpoint, keyed by parameter name (see `pieces.save_residuals`)."""
        return states.save_residuals(self.pieces)

    @property
    def residuals_are_summands(self) -> bool:
        """Whether residuals belong to partial gradients, which must be summed over ranks.

        Residuals arise before gradients are summed over the copies of a tied weight and over the tensor-parallel group.
        Ranks then hold different residuals of the same elements.
        """
        return True

    def load_residuals(self, saved: dict[str, dict[str, Tensor]]) -> None:
        """Load saved `residuals` (see `pieces.load_residuals`)."""
        states.load_residuals(self.pieces, saved)

    def factors(self) -> dict[str, Tensor]:
        """Return the factors of low-rank gradients for a checkpoint, keyed by parameter name."""
        return self._gradients.low_rank.save()

    def load_factors(self, saved: dict[str, Tensor]) -> None:
        """Load saved `factors` (see `LowRank.load`)."""
        self._gradients.low_rank.load(saved)

    def forget_residuals(self) -> None:
        """Set the residuals to zero after a step whose gradients are discarded."""
        self._gradients.low_rank.forget()
        for piece in self.pieces:
            if piece.feedback:
                piece.feedback.forget()

    def held_bytes(self) -> dict[str, int]:
        """Return the size in bytes of the tensors that persist between steps, by purpose, for the device and the host.

        Residuals of error feedback are in the memory where messages are encoded. Residuals are listed only if they
        exist. Masks of sparse weights count as parameters.
        """
        home = "host" if self.link else "device"
        sums = {"device parameters": 0, "device gradients": 0, f"{home} gradients": 0, f"{home} optimizer": 0}
        residuals = Counter[str]()
        for piece in self.pieces:
            sums["device parameters"] += piece.packing.kept.nbytes if piece.packing else 0
            sums["device parameters"] += piece.bucket.values.untyped_storage().nbytes()
            sums["device gradients"] += piece.bucket.gradients.nbytes
            sums[f"{home} optimizer"] += piece.adam.first.nbytes + piece.adam.second.nbytes
            if not piece.in_place:
                sums[f"{home} optimizer"] += piece.master.nbytes
                sums[f"{home} gradients"] += piece.gradient.nbytes
            if piece.feedback:
                where = "device" if isinstance(piece.feedback.sent, Tensor) else "host"
                residuals[f"{where} residuals"] += piece.feedback.sent.nbytes + piece.feedback.summed.nbytes
        if self._on_demand:
            sums["device parameters"] += self._on_demand.held_bytes(sources=self.link is not None)
        return sums | residuals

    def _give_again(self) -> None:
        """Pass master weights that changed without an update to the engine's on-demand gathers."""
        if self._on_demand:
            for piece in self.pieces:
                self._on_demand.give(piece, self._on_device(piece))

    def _on_device(self, piece: Piece) -> Tensor:
        """Return the master weights on the device of the model."""
        return self.link.up(piece.master).wait() if self.link else piece.master
