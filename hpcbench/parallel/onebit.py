"""1-bit Adam (arXiv 2102.02888, algorithm 1): Adam during warm-up, then averaged momenta with a frozen variance.

Once the variance is frozen, the update is linear in the momentum, so the next step can correct the codec error of a
momentum. A reduction with error feedback (comm/feedback.py) implements the paper's compressed all-reduce. Each worker
adds its residual and sends signs to the owners of the pieces. Each owner averages the signs, adds its own residual, and
sends signs to all workers. As for all traffic, the scheme selects the codec. Differences from the paper:

- ``sign:B`` uses one magnitude per block, the mean of the absolute values. The paper uses one magnitude per tensor, the
root mean square.
- A rank does not encode its contribution to its own piece, so this part is exact.
- Adam's bias corrections of the moments remain. The correction of the variance is frozen together with the variance.

Gradients are never clipped, because after the freeze no rank has the mean gradient or its norm. The norms of the
replicas' own gradients do not determine the norm of the mean. The replicas' norms are larger than the norm of the mean,
by a factor of up to the square root of the number of replicas. DeepSpeed scales each rank's gradient by the norm of
this rank, which is a different algorithm.
"""

import math
from collections.abc import Iterable

from hpcbench.comm.policy import Policy
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.adamw import AdamW
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.buffers import from_buffer, residuals, to_buffer, to_tensor
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.exact import exact_sum
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.pieces import Piece


class OneBitAdam(DataParallel):
    """Data parallelism without ZeRO that averages momenta instead of gradients after the warm-up.

    Parameters
    ----------
    buckets, mesh, policy, adam, overlap
        See `DataParallel`. Momenta use the channel (DP, STEP, OPTIM).
    freeze_step
        Number of Adam updates with averaged gradients before the variance is frozen (at least 1).
    """

    def __init__(
        self,
        buckets: Iterable[Bucket],
        *,
        mesh: Mesh,
        policy: Policy,
        adam: AdamW,
        freeze_step: int,
        overlap: bool = False,
    ) -> None:
        super().__init__(buckets, mesh=mesh, policy=policy, zero=0, adam=adam, overlap=overlap)
        self._overlap = overlap and mesh.dp.size > 1
        if freeze_step < 1:
            raise ValueError(
                f"freeze_step {freeze_step}: 1-bit Adam needs the variance of at least one gradient: set "
                "freeze_step to 1 or more"
            )
        self._freeze_step = freeze_step
        self._momenta = policy.channel(Dimension.DP, Phase.STEP, MessageKind.OPTIM)
        if mesh.dp.size > 1 and any(treatment.feedback for treatment in policy.treatments(self._momenta)):
            for piece in self.pieces:
                piece.feedback = piece.feedback or residuals(piece.bucket.values.numel(), piece.master)

    @property
    def frozen(self) -> bool:
        """Whether the variance is frozen. The result depends only on the number of updates, even in a resumed run."""
        return self.updates >= self._freeze_step

    def frozen_elements(self) -> tuple[int, int]:
        """Count all elements of the model, and the elements that have had no gradient so far and will never change.

        All ranks must call this method, and all return the same counts. The method should be called immediately after
        the variance is frozen.
        """
        counts = [0.0, 0.0]
        for variance in (piece.adam.second[part] for piece in self.pieces for part in piece.counted()):
            counts[0] += variance.numel()
            counts[1] += float((variance == 0).sum())
        elements, unused = exact_sum(self._mesh.world, counts, self._exact)
        replicas = self._mesh.dp.size
        return round(elements / replicas), round(unused / replicas)

    def begin(self, *, micro_batches: int, loss_scale: float) -> None:
        """Begin a step, as `DataParallel.begin` does.

        Once the variance is frozen, the pieces contain this replica's own gradients.
        """
        self._gradients.averaged = not self.frozen
        super().begin(micro_batches=micro_batches, loss_scale=loss_scale)

    def gradient_norm(self) -> float | None:
        """Return the gradient norm of `DataParallel` during warm-up.

        Once the variance is frozen, return NaN if any replica's gradient is not finite, and None otherwise. All ranks
        therefore skip the same steps.
        """
        if not self.frozen:
            return super().gradient_norm()
        return None if math.isfinite(self._world_norm(self._square(self.pieces))) else math.nan

    def step(self, *, lr: float, clip: float, norm: float | None) -> None:
        """Update the weights.

        Raises
        ------
        ValueError
            `clip` is not 0.
        """
        if clip:
            raise ValueError(
                f"clip {clip}: 1-bit Adam does not compute the norm of the mean gradient and cannot clip "
                "gradients: set clip to 0"
            )
        if not self.frozen:
            super().step(lr=lr, clip=clip, norm=norm)
            return
        averages = []
        if self.updates == self._freeze_step:
            super().forget_residuals()  # residuals of gradients, because no momenta have been sent yet
        for piece in self.pieces:
            piece.adam.add_to_first(piece.gradient)
            momentum = to_buffer(piece.adam.first)
            momentum /= self._mesh.dp.size
            work = self._mesh.dp.all_reduce(
                momentum,
                channel=self._momenta.describe(piece.bucket.list_message_parts),
                feedback=piece.feedback if self._momenta.feedback else None,
            )
            averages.append((piece, momentum, work.in_background() if self._overlap else work))
        for piece, momentum, work in averages:
            work.wait()
            piece.adam.first.copy_(from_buffer(momentum, piece.adam.first))
            self._clear_unused(piece)
            piece.adam.apply(piece.master, lr=lr, seen=self._freeze_step)
            self._weights.give(piece, piece.master)

    @property
    def residuals_are_summands(self) -> bool:
        """Always False, because momenta belong to complete gradients."""
        return not self.frozen

    def forget_residuals(self) -> None:
        """Set the residuals to zero, as `DataParallel` does, unless the variance is frozen.

        Once the variance is frozen, a step is discarded before its momenta are sent, so the errors of earlier momenta
        must still be corrected.
        """
        if not self.frozen:
            super().forget_residuals()

    def _clear_unused(self, piece: Piece) -> None:
        """Set momentum and residuals to zero for elements that have never had a gradient.

        Because a sign cannot be zero, these elements would otherwise receive the magnitude of their block, and this
        magnitude would be divided by a variance of zero. The padding is zeroed in the same way. An element whose first
        gradient arrives after the freeze never changes.
        """
        unused = piece.adam.second == 0
        piece.adam.first.masked_fill_(unused, 0)
        for residual in (piece.feedback.sent, piece.feedback.summed) if piece.feedback else ():
            to_tensor(residual).masked_fill_(unused, 0)
