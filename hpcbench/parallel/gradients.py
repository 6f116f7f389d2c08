"""Reduction of gradients to the owners of the pieces.

Stages 0 and 1 keep the whole gradient of a bucket until the last micro-batch and reduce it once per step. Stages 2 and
3 reduce the gradient of a bucket in each micro-batch, as soon as the gradient is complete. These stages accumulate only
the owned piece of the sum and free the rest (arXiv 1910.02054, section 5.2). Compared with stages 0 and 1, this needs
less memory, but more messages.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from hpcbench.comm.policy import Policy
from hpcbench.comm.work import Work
from hpcbench.contract.grid import is_summed_by_channel
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.averaged_errors import AveragedErrors
from hpcbench.parallel.buffers import Buffer, from_buffer, to_buffer, wire_dtype
from hpcbench.parallel.low_rank import LowRank
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.mixed_widths import MixedWidths
from hpcbench.parallel.offload import HostLink
from hpcbench.parallel.packing import clear
from hpcbench.parallel.pieces import Piece, Reduction
from hpcbench.parallel.sparse.reduction import ByRows
from hpcbench.parallel.sparse.touched import Touched
from hpcbench.parallel.whole import start_sum

UNDER_WAY = 2
"""Maximum number of concurrent reductions of stages 2 and 3. One bucket is reduced while the next bucket fills.

Each reduction occupies as much memory as a bucket.
"""


class Gradients:
    """Reducer that averages the gradients of buckets into pieces.

    Parameters
    ----------
    pieces
        Pieces that this rank owns.
    mesh
        Mesh of the rank. The group `Mesh.replicas` holds the same parameters. The ranks of the group ``ends`` hold
        the two copies of a tied weight. Groups along the tensor grid sum the gradients of replicated parameters.
    policy
        Policy that provides the channels.
    scattered
        Whether each rank needs only the sum of its own piece (stages 1 to 3).
    freed
        Whether whole gradients are freed after each micro-batch (stages 2 and 3).
    overlap
        Whether to reduce during the backward pass instead of after it.
    link
        Link to host memory, or None if the gradients of the pieces are on the device.
    whole
        Callback, used if `freed` is set. The callback is called when a micro-batch has added all gradients of a bucket,
        so that the weights of the bucket are no longer needed.
    touched
        Record of the touched rows of the table whose gradient may be sent as rows, or None if there is no such table.
    always
        Whether the gradient of this table is sent as rows even if rows take more bytes.

    Attributes
    ----------
    by_rows : ByRows or None
        Reducer of the table whose gradient may be sent as rows, or None if there is no such table.
    low_rank : LowRank
        Reducer of low-rank approximations of gradients.
    mixed_widths : MixedWidths or None
        Reducer of gradients whose super-groups have different widths, or None if there is no such rule or no other
        replica.
    averaged_errors : AveragedErrors
        Moving average of the residuals of error feedback.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        *,
        mesh: Mesh,
        policy: Policy,
        scattered: bool,
        freed: bool,
        overlap: bool,
        link: HostLink | None,
        whole: Callable[[Piece], None] | None,
        touched: Touched | None = None,
        always: bool = False,
    ) -> None:
        self._pieces = pieces
        self._mesh = mesh
        self._scattered, self._freed, self._overlap = scattered, freed, overlap
        self._link = link
        self._whole = whole
        self._channel = policy.channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
        self._tied = policy.channel(Dimension.PP, Phase.STEP, MessageKind.GRAD)
        self._summands = {
            axes: policy.channel(
                Dimension.TP if is_summed_by_channel(axes) else Dimension.EXACT,
                *(Phase.BACKWARD, MessageKind.GRAD),
                *(() if mesh.grid.mode == "1d" else ("".join(axes),)),
            )
            for axes in sorted(mesh.grid.sums)
        }
        self.by_rows: ByRows | None = None
        if touched and mesh.dp.size > 1:
            exact = policy.channel(Dimension.EXACT, Phase.BACKWARD, MessageKind.GRAD)
            self.by_rows = ByRows(touched, group=mesh.dp, channel=self._channel, exact=exact, always=always)
        self.low_rank = LowRank(self._channel)
        self.mixed_widths: MixedWidths | None = None
        if mesh.dp.size > 1 and any(treatment.mixed_bits for treatment in policy.treatments(self._channel)):
            exact = policy.channel(Dimension.EXACT, Phase.BACKWARD, MessageKind.GRAD)
            self.mixed_widths = MixedWidths(self._channel, exact)
        self.averaged_errors = AveragedErrors(self._channel)
        self._loss_scale = 1.0
        self._scaled_messages = False
        self.averaged = True
        """Whether gradients are averaged over replicas. If not, the pieces contain this replica's own gradients."""
        self._under_way: list[Piece] = []
        for piece in pieces:
            for k, slot in enumerate(piece.bucket.slots):
                slot.parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    partial(self._added, piece, k)
                )

    def begin(self, *, micro_batches: int, loss_scale: float) -> None:
        """Discard all gradients.

        Afterwards, the caller runs the backward passes of `micro_batches` micro-batches, with the loss multiplied by
        `loss_scale`.
        """
        self._loss_scale = loss_scale
        self._scaled_messages = self._channel.dtype == np.float16 and not self._channel.treatment.keeps_errors
        if self.by_rows:
            self.by_rows.begin()
        for piece in self._pieces:
            piece.to_come = len(piece.bucket.slots) * (1 if self._freed else micro_batches)
            piece.bucket.await_gradients()
            if self._freed:
                piece.gradient.zero_()

    def finish(self) -> None:
        """Complete the averages of all gradients and remove the loss scale."""
        for piece in self._pieces:
            if piece.bucket.has_gradients and piece.to_come:
                piece.bucket.clear_missing()
        for piece in () if self.averaged else self._pieces:
            copy(piece.gradient, piece.bucket.gradients)
            divide(piece.gradient, self._loss_scale)
        for piece in self._pieces if self.averaged else ():
            if piece.bucket.has_gradients and piece.reduction is None:
                self._start(piece)
            if not self._overlap and piece.reduction:
                self._finish(piece)
        for piece in self._pieces:
            if piece.reduction:
                self._finish(piece)
        self._under_way = []
        self._reduce_tied()
        self._reduce_partial()

    def _added(self, piece: Piece, k: int, parameter: Tensor) -> None:
        """Record that the backward pass has added a gradient to slot `k`.

        Reductions of complete buckets are started in the same order on every replica.
        """
        piece.bucket.take_gradient(k)
        piece.to_come -= 1
        if self._freed:
            if not piece.to_come:
                if self._whole:
                    self._whole(piece)
                self._start_and_free(piece)
            return
        if not self._overlap or not self.averaged:
            return
        for other in self._pieces:
            if other.reduction:
                continue
            if other.to_come:
                return
            self._start(other)

    def _start_and_free(self, piece: Piece) -> None:
        """Reduce the gradients of one micro-batch, and free their memory."""
        piece.to_come = len(piece.bucket.slots)
        if piece.reduction:
            self._finish(piece)  # the reduction of the previous micro-batch
        self._under_way = [other for other in self._under_way if other.reduction]
        while len(self._under_way) >= UNDER_WAY:
            self._finish(self._under_way.pop(0))
        self._start(piece)
        self._under_way.append(piece)
        if not self._overlap:
            self._finish(piece)

    def _start(self, piece: Piece) -> None:
        """Start to reduce a bucket.

        Gradients are divided by the loss scale before they are sent. Otherwise, a sum of half-precision codes could
        overflow, and residuals could have a different loss scale than the gradients to which they are added. Only fp16
        messages without residuals keep the loss scale, because small gradients would underflow in fp16.
        """
        group, channel, gradients = self._mesh.replicas(piece.bucket.ep), self._channel, piece.bucket.gradients
        feedback = piece.feedback if channel.feedback else None
        if self._freed:
            piece.bucket.free_gradients()  # the message keeps the memory until it has been sent
        # also correct for experts, whose ranks process the tokens of all ranks of the expert-parallel group
        divisor = self._mesh.dp.size * (1.0 if self._scaled_messages else self._loss_scale)
        if group.size == 1:  # the gradients stay in the bucket
            sums = gradients.to(wire_dtype(gradients.dtype))
            divide(sums, divisor)
            if piece.packing:
                clear((sums,), piece.packing.kept)
            piece.reduction = Reduction(sums, Work.nothing(channel))
            return
        if feedback:
            self.averaged_errors.keep(piece)
        if self.by_rows and piece.bucket.by_rows:
            piece.reduction = self.by_rows.start(piece, gradients, divisor)
            if piece.reduction:
                if self._overlap:
                    piece.reduction.work.in_background()
                return
        if channel.low_rank:
            piece.reduction = self.low_rank.start(piece, gradients, divisor, group)
            if piece.reduction:
                if self._overlap:
                    piece.reduction.work.in_background()
                return
        if self.mixed_widths and channel.mixed_bits:
            piece.reduction = self.mixed_widths.start(piece, gradients, divisor, group, scattered=self._scattered)
            if piece.reduction:
                if self._overlap:
                    piece.reduction.work.in_background()
                return
        packed = feedback
        if piece.packing:
            gradients = piece.packing.pack(gradients)
            packed = piece.packing.pack_residuals(feedback, piece.master) if feedback else None
        buffer = to_buffer(gradients)
        divide(buffer, divisor)
        if not piece.packing:  # a message without zeros contains no complete matrix
            channel = channel.describe(piece.bucket.list_message_parts)
        piece.reduction = start_sum(piece, buffer, group, channel, scattered=self._scattered, residuals=packed)
        if self._overlap:
            piece.reduction.work.in_background()

    def _finish(self, piece: Piece) -> None:
        reduction, piece.reduction = piece.reduction, None
        assert reduction is not None
        reduction.wait()
        if self._scaled_messages:
            divide(reduction.result, self._loss_scale)
        reduced = reduction.result.to(piece.bucket.values.device)
        if piece.packing and reduction.sent is not None:
            reduced = piece.packing.unpack_own(reduced)
            if reduction.residuals and piece.feedback:
                piece.packing.unpack_residuals(reduction.residuals, piece.feedback)
        self.averaged_errors.average(piece)
        if self._link:
            reduced = self._link.down(reduced).wait()
        if self._freed:
            piece.gradient += reduced
        else:
            copy(piece.gradient, reduced)
        clear_padding(piece)

    def _reduce_tied(self) -> None:
        """Sum the gradients of the two copies of a tied weight. Both stages use the same pieces."""
        scale = self._loss_scale if self._tied.dtype == np.float16 else 1.0
        for piece in (piece for piece in self._pieces if piece.bucket.tied):
            buffer = to_buffer(piece.gradient)
            divide(buffer, 1 / scale)  # small gradients would underflow in fp16 without the loss scale
            tensors = partial(piece.bucket.list_message_parts, piece.owned)
            self._mesh.ends.all_reduce(buffer, channel=self._tied.describe(tensors)).wait()
            divide(buffer, scale)
            copy(piece.gradient, from_buffer(buffer, piece.gradient))
            clear_padding(piece)

    def _reduce_partial(self) -> None:
        """Sum partial gradients over the groups along the tensor grid."""
        for piece in (piece for piece in self._pieces if piece.bucket.summands):
            axes = piece.bucket.summands
            channel = self._summands[axes]
            scale = self._loss_scale if channel.dtype == np.float16 else 1.0
            summands = piece.gradient[: max(piece.bucket.padding.start - piece.owned.start, 0)]
            if summands.numel():
                buffer = to_buffer(summands)
                divide(buffer, 1 / scale)
                tensors = partial(piece.bucket.list_message_parts, piece.owned)
                self._mesh.over(axes).all_reduce(buffer, channel=channel.describe(tensors)).wait()
                divide(buffer, scale)
                copy(summands, from_buffer(buffer, summands))


def divide(values: Buffer, divisor: float) -> None:
    """Divide in-place. With a divisor of 1, the call is a no-op."""
    if divisor != 1.0:
        values /= divisor


def copy(there: Tensor, source: Tensor) -> None:
    """Copy the values of `source`, unless an in-place reduction has already written them."""
    if there.data_ptr() != source.data_ptr():
        there.copy_(source)


def clear_padding(piece: Piece) -> None:
    """Set the padding to zero.

    A block codec may change zeros that share a block with other values.
    """
    padding = piece.bucket.padding
    piece.gradient[max(padding.start - piece.owned.start, 0) :] = 0
    if piece.feedback:
        piece.feedback.sent[padding] = 0
        piece.feedback.summed[padding] = 0
