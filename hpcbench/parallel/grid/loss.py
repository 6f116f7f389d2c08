"""Cross-entropy of logits that a tensor grid cuts along samples and vocabulary."""

from collections.abc import Callable
from typing import Any

import torch
from mpi4py import MPI
from torch import Tensor

from hpcbench.contract.traffic import Phase
from hpcbench.parallel.grid.lines import GridLine, Lines, check
from hpcbench.parallel.regions import all_reduce
from hpcbench.parallel.vocabulary import locate


def grid_loss(lines: Lines) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function that computes the mean cross-entropy in nats, bitwise identical on all ranks of the grid.

    Returns
    -------
    A function of the rank's logits, [b / r, s, V / c], and of all targets, [b, s]. The grid cuts rows into r pieces and
    columns into c pieces.
    """
    inner = lines.grid.inner
    vocabulary, rows = (lines.exact(axes, Phase.FORWARD) for axes in (inner.columns, inner.rows))

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        check(logits, inner, "the loss")
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)  # [n, V / c]
        first = lines.index(inner.columns) * wide.shape[1]
        targets_here = lines.select_rows(targets, inner.rows).flatten()
        held = slice(first, first + wide.shape[1])
        mean: Tensor = _CrossEntropy.apply(wide, targets_here, held, vocabulary, rows)  # type: ignore[no-untyped-call]
        return mean

    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, held: slice, vocabulary: GridLine, rows: GridLine) -> Tensor:
        place, present = locate(targets, held)
        largest = all_reduce(logits.amax(dim=-1), vocabulary.group, vocabulary.channel, MPI.MAX)  # [n]
        shifted = logits - largest[:, None]
        target = shifted.gather(-1, place[:, None])[:, 0].masked_fill(~present, 0)  # [n]
        exponentials = shifted.exp_()
        sums = torch.stack((exponentials.sum(dim=-1), target))  # [2, n]
        total, target = all_reduce(sums, vocabulary.group, vocabulary.channel).unbind()
        ctx.save_for_backward(exponentials.div_(total[:, None]), place, present)
        ctx.tokens = len(place) * rows.group.size
        return all_reduce((total.log() - target).sum() / ctx.tokens, rows.group, rows.channel)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Compute softmax - onehot(target). Each rank computes its own part without communication."""
        softmax, place, present = ctx.saved_tensors
        scale = gradients[0] / ctx.tokens
        gradient = softmax * scale
        gradient.scatter_add_(-1, place[:, None], -(present * scale)[:, None])
        return gradient, None, None, None, None
