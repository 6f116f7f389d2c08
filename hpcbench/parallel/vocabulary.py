"""Embedding and cross-entropy with a vocabulary that is split over a tensor-parallel group.

The method is described in arXiv 1909.08053, section 3. Each rank holds consecutive rows, determined by `cut_evenly`. V
need not be a multiple of t, and nothing is padded: parts may differ by one row, and buckets use their mean size. The
head is an ordinary column layer, and its logits are not gathered. Shapes: b samples, s positions, h features, V
vocabulary entries, n = b s, t ranks, V/t rows on this rank.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from mpi4py import MPI
from torch import Tensor, nn

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.contract.shards import count_elements, cut_evenly
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.regions import Border, all_reduce, leave


def held_rows(vocab: int, group: Group) -> slice:
    """Return the rows of the table that this rank holds."""
    return cut_evenly(vocab, group.size)[group.rank]


def locate(tokens: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """Return the row indices of tokens in a rank's part, and a mask of the tokens that the rank holds.

    The index is 0 for tokens of other ranks.
    """
    here = (tokens >= rows.start) & (tokens < rows.stop)
    return torch.where(here, tokens - rows.start, 0), here


class VocabularyEmbedding(nn.Module):
    """Embedding layer with this rank's rows of the table, [V/t, h].

    Vectors of tokens on other ranks are zero before the sum over ranks. The backward pass needs no reduction.
    """

    def __init__(self, plain: nn.Embedding, border: Border) -> None:
        super().__init__()
        self._border = border
        self._rows = held_rows(plain.num_embeddings, border.group)
        self.weight = nn.Parameter(torch.empty(count_elements(self._rows), plain.embedding_dim, device="meta"))

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up token vectors, summed over the ranks, for all positions or for this rank's positions."""
        place, here = locate(tokens, self._rows)
        rows = F.embedding(place, self.weight)  # [b, s] -> [b, s, h]
        return leave(rows.masked_fill(~here.unsqueeze(-1), 0), self._border)  # [b, s, h], or [b, s/t, h]


class PositionEmbedding(nn.Module):
    """Position embedding whose complete table, [s, h], is on every rank.

    Each rank looks up the positions of its part of the residual stream.
    """

    def __init__(self, plain: nn.Embedding, border: Border) -> None:
        super().__init__()
        self._border = border
        self.weight = nn.Parameter(torch.empty_like(plain.weight, device="meta"))

    def forward(self, positions: Tensor) -> Tensor:
        """Look up the vectors of the positions that this rank holds."""
        return F.embedding(self._border.select_positions(positions), self.weight)  # [s] -> [s, h], or [s/t, h]


def split_loss(
    plain: Callable[[Tensor, Tensor], Tensor], *, vocab: int, group: Group, policy: Policy
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss function for logits that are split along the vocabulary.

    If the group contains only one rank, `plain` is returned.

    Parameters
    ----------
    plain
        Loss function of logits, [b, s, V], and targets, [b, s].
    vocab
        Size of the vocabulary.
    group
        The tensor-parallel group.
    policy
        Policy that provides the channel for statistics.

    Returns
    -------
    A function of logits, [b, s, V/t], and targets, [b, s], that returns the mean cross-entropy in nats, in fp32 or
    better. The result is bitwise identical on all ranks.
    """
    if group.size == 1:
        return plain
    exact = policy.channel(Dimension.EXACT, Phase.FORWARD, MessageKind.ACT)
    rows = held_rows(vocab, group)

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)  # [n, V/t]
        mean: Tensor = _CrossEntropy.apply(wide, targets.flatten(), rows, group, exact)  # type: ignore[no-untyped-call]
        return mean

    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, rows: slice, group: Group, exact: Channel) -> Tensor:
        place, here = locate(targets, rows)
        largest = all_reduce(logits.amax(dim=-1), group, exact, MPI.MAX)  # [n, V/t] -> [n]
        shifted = logits - largest[:, None]
        target = shifted.gather(-1, place[:, None])[:, 0].masked_fill(~here, 0)  # [n]
        exponentials = shifted.exp_()
        sums = torch.stack((exponentials.sum(dim=-1), target))  # [2, n]
        total, target = all_reduce(sums, group, exact, MPI.SUM).unbind()
        ctx.save_for_backward(exponentials.div_(total[:, None]), place, here)
        return (total.log() - target).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Compute softmax - onehot(target). Each rank computes its own part without communication."""
        softmax, place, here = ctx.saved_tensors
        scale = gradients[0] / len(place)
        gradient = softmax * scale
        gradient.scatter_add_(-1, place[:, None], -(here * scale)[:, None])
        return gradient, None, None, None, None
