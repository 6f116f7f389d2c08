"""Ulysses attention (arXiv 2309.14509).

Ranks exchange positions for heads: each rank computes some heads at all positions.

Queries, keys and values are exchanged in an all-to-all before the attention, and the results in another all-to-all
after it. The backward pass exchanges the gradients in the opposite direction. With overlap, the heads of a rank are
exchanged in two halves: one half is computed while the other half is transferred. With grouped queries, a key-value
head moves together with the r query heads of its group. Shapes: p ranks, b samples, a key-value heads with r query
heads each, m positions per rank, s = p m positions in total, g heads per exchange, d features per head, t tensors per
exchange (r + 2 before the attention, r after it).
"""

from typing import Any

import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.work import Work
from hpcbench.parallel.buffers import Buffer, from_buffer, room, to_buffer
from hpcbench.parallel.context.blocks import Attended, attend, attend_backward
from hpcbench.parallel.context.passing import Sharers


def head_attention(q: Tensor, k: Tensor, v: Tensor, ranks: Sharers, *, causal: bool = True) -> Tensor:
    """Compute the attention of this rank's queries to the keys of all ranks. Each rank holds consecutive positions.

    The shape of queries is [b, a r, m, d]. The shape of keys and values is [b, a, m, d].
    """
    values: Tensor = _Heads.apply(q, k, v, ranks, causal)  # type: ignore[no-untyped-call]
    return values


class _Exchange:
    """An all-to-all in progress.

    Parameters
    ----------
    parts
        Values for each rank, [p, ...].
    """

    def __init__(self, parts: Tensor, ranks: Sharers, channel: Channel) -> None:
        self._like = parts
        self._sent: Buffer = to_buffer(parts).reshape(-1)  # must stay alive until the message has been sent
        self._came = room(parts.shape, like=parts)
        counts = [parts[0].numel()] * len(parts)
        work = ranks.group.all_to_all(
            self._sent, self._came.reshape(-1), (counts, counts), channel=channel.describe((-1, parts.shape[-1]))
        )
        self._work: Work = ranks.begun(work)

    def wait(self) -> Tensor:
        """Return the values received from each rank, [p, ...]."""
        self._work.wait()
        return from_buffer(self._came, self._like)


def _halves(heads: int, ranks: Sharers) -> int:
    """Return the number of turns in which heads are exchanged, 1 or 2."""
    return 2 if ranks.overlap and heads // ranks.group.size % 2 == 0 else 1


def _by_head(x: Tensor, ranks: int, turns: int) -> Tensor:
    """Sort the heads by turn and by the rank that computes them: [t, b, a, m, d] -> [turns, p, t, b, g, m, d]."""
    t, b, a, m, d = x.shape
    return x.reshape(t, b, ranks, turns, a // ranks // turns, m, d).permute(3, 2, 0, 1, 4, 5, 6)


def _join_positions(parts: Tensor) -> Tensor:
    """Concatenate the positions of all ranks, in order, for some heads: [p, t, b, g, m, d] -> [t, b, g, s, d]."""
    p, t, b, g, m, d = parts.shape
    return parts.permute(1, 2, 3, 0, 4, 5).reshape(t, b, g, p * m, d)


def _by_position(x: Tensor, ranks: int) -> Tensor:
    """Sort the positions by rank: [t, b, g, s, d] -> [p, t, b, g, m, d]."""
    t, b, g, s, d = x.shape
    return x.reshape(t, b, g, ranks, s // ranks, d).permute(3, 0, 1, 2, 4, 5)


def _in_group(x: Tensor, groups: int) -> Tensor:
    """Sort query heads by their index in the group: [b, a r, m, d] -> [r, b, a, m, d]."""
    b, heads, m, d = x.shape
    return x.reshape(b, groups, heads // groups, m, d).permute(2, 0, 1, 3, 4)


def _by_group(x: Tensor) -> Tensor:
    """Sort query heads by group, in model order: [r, b, a, m, d] -> [b, a r, m, d]."""
    return x.permute(1, 2, 0, 3, 4).flatten(1, 2)


def _joined(turns: list[Tensor]) -> Tensor:
    """Join all heads of this rank's positions, in order: turns of [p, t, b, g, m, d] -> [t, b, a, m, d]."""
    x = torch.stack(turns)  # [turns, p, t, b, g, m, d]
    n, p, t, b, g, m, d = x.shape
    return x.permute(2, 3, 1, 0, 4, 5, 6).reshape(t, b, p * n * g, m, d)


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ranks: Sharers, causal: bool) -> Tensor:
        p, turns = ranks.group.size, _halves(k.shape[1], ranks)
        leaving = list(_by_head(torch.cat((_in_group(q, k.shape[1]), k[None], v[None])), p, turns))
        saved: list[Tensor] = []
        returning: list[_Exchange] = []
        coming = _Exchange(leaving[0], ranks, ranks.forward)
        for turn in range(turns):
            now = coming
            if turn + 1 < turns:
                coming = _Exchange(leaving[turn + 1], ranks, ranks.forward)
            mine = _join_positions(now.wait())  # [r + 2, b, g, s, d]
            attended = attend(_by_group(mine[:-2]), mine[-2], mine[-1], causal=causal)
            saved += [mine, *attended]
            values = _in_group(attended.values, mine.shape[2])
            returning.append(_Exchange(_by_position(values, p), ranks, ranks.forward))
        ctx.ranks, ctx.causal = ranks, causal
        ctx.save_for_backward(*saved)
        return _by_group(_joined([exchange.wait() for exchange in returning]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        saved, ranks = ctx.saved_tensors, ctx.ranks
        p, turns = ranks.group.size, len(saved) // 3
        (gradient,) = gradients
        groups = p * turns * saved[0].shape[2]
        leaving = list(_by_head(_in_group(gradient, groups), p, turns))
        returning: list[_Exchange] = []
        coming = _Exchange(leaving[0], ranks, ranks.backward)
        for turn in range(turns):
            now = coming
            if turn + 1 < turns:
                coming = _Exchange(leaving[turn + 1], ranks, ranks.backward)
            mine, values, weight = saved[3 * turn : 3 * turn + 3]
            queries = _by_group(mine[:-2])
            gradients_of = attend_backward(
                *(_by_group(_join_positions(now.wait())), queries, mine[-2], mine[-1], Attended(values, weight)),
                causal=ctx.causal,
            )
            leaving_groups = torch.cat(
                (_in_group(gradients_of.queries, mine.shape[2]), gradients_of.keys[None], gradients_of.values[None])
            )
            returning.append(_Exchange(_by_position(leaving_groups, p), ranks, ranks.backward))
        received = _joined([exchange.wait() for exchange in returning])
        return _by_group(received[:-2]), received[-2], received[-1], None, None
