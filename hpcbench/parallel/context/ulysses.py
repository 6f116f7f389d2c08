"""Ulysses attention: ranks exchange positions for heads, so each has all positions of some heads (arXiv 2309.14509).

An all-to-all of queries, keys and values precedes the attention, and an all-to-all of its result follows it. The
backward pass does the same with the gradients in the opposite direction. If messages move during the computation, the
heads of a rank are exchanged in two halves: one is computed while the other is under way. Shapes: p ranks, b samples, a
heads, m positions of a rank, s = p m, g heads that are exchanged at a time, d features of a head.
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
    """Compute attention of this rank's queries to all ranks' keys; all are [b, a, m, d] at neighboring positions."""
    values: Tensor = _Heads.apply(q, k, v, ranks, causal)  # type: ignore[no-untyped-call]
    return values


class _Exchange:
    """An all-to-all under way.

    Parameters
    ----------
    parts
        Values to each rank: [p, ...].
    """

    def __init__(self, parts: Tensor, ranks: Sharers, channel: Channel) -> None:
        self._like = parts
        self._sent: Buffer = to_buffer(parts).reshape(-1)  # must live until the message has left
        self._came = room(parts.shape, like=parts)
        counts = [parts[0].numel()] * len(parts)
        work = ranks.group.all_to_all(
            self._sent, self._came.reshape(-1), (counts, counts), channel=channel.describe((-1, parts.shape[-1]))
        )
        self._work: Work = ranks.begun(work)

    def wait(self) -> Tensor:
        """Return the values from each rank: [p, ...]."""
        self._work.wait()
        return from_buffer(self._came, self._like)


def _halves(heads: int, ranks: Sharers) -> int:
    """Return the number of turns in which the heads are exchanged."""
    return 2 if ranks.overlap and heads // ranks.group.size % 2 == 0 else 1


def _by_head(x: Tensor, ranks: int, turns: int) -> Tensor:
    """Sort the heads by turn and by the rank that computes them: [t, b, a, m, d] -> [turns, p, t, b, g, m, d]."""
    t, b, a, m, d = x.shape
    return x.view(t, b, ranks, turns, a // ranks // turns, m, d).permute(3, 2, 0, 1, 4, 5, 6)


def _join_positions(parts: Tensor) -> Tensor:
    """Join all positions of some heads, in order: [p, t, b, g, m, d] -> [t, b, g, s, d]."""
    p, t, b, g, m, d = parts.shape
    return parts.permute(1, 2, 3, 0, 4, 5).reshape(t, b, g, p * m, d)


def _by_position(x: Tensor, ranks: int) -> Tensor:
    """Sort the positions by rank: [t, b, g, s, d] -> [p, t, b, g, m, d]."""
    t, b, g, s, d = x.shape
    return x.view(t, b, g, ranks, s // ranks, d).permute(3, 0, 1, 2, 4, 5)


def _joined(turns: list[Tensor]) -> Tensor:
    """Join all heads of this rank's positions, in order: turns of [p, t, b, g, m, d] -> [t, b, a, m, d]."""
    x = torch.stack(turns)  # [turns, p, t, b, g, m, d]
    n, p, t, b, g, m, d = x.shape
    return x.permute(2, 3, 1, 0, 4, 5, 6).reshape(t, b, p * n * g, m, d)


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ranks: Sharers, causal: bool) -> Tensor:
        p, turns = ranks.group.size, _halves(q.shape[1], ranks)
        leaving = list(_by_head(torch.stack((q, k, v)), p, turns))
        saved: list[Tensor] = []
        returning: list[_Exchange] = []
        coming = _Exchange(leaving[0], ranks, ranks.forward)
        for turn in range(turns):
            now = coming
            if turn + 1 < turns:
                coming = _Exchange(leaving[turn + 1], ranks, ranks.forward)
            mine = _join_positions(now.wait())  # [3, b, g, s, d]
            attended = attend(*mine.unbind(), causal=causal)
            saved += [mine, *attended]
            returning.append(_Exchange(_by_position(attended.values[None], p), ranks, ranks.forward))
        ctx.ranks, ctx.causal = ranks, causal
        ctx.save_for_backward(*saved)
        return _joined([exchange.wait() for exchange in returning])[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        saved, ranks = ctx.saved_tensors, ctx.ranks
        p, turns = ranks.group.size, len(saved) // 3
        leaving = list(_by_head(gradients[0][None], p, turns))
        returning: list[_Exchange] = []
        coming = _Exchange(leaving[0], ranks, ranks.backward)
        for turn in range(turns):
            now = coming
            if turn + 1 < turns:
                coming = _Exchange(leaving[turn + 1], ranks, ranks.backward)
            mine, values, weight = saved[3 * turn : 3 * turn + 3]
            gradients_of = attend_backward(
                *(_join_positions(now.wait())[0], *mine.unbind(), Attended(values, weight)), causal=ctx.causal
            )
            returning.append(_Exchange(_by_position(torch.stack(gradients_of), p), ranks, ranks.backward))
        of_queries, of_keys, of_values = _joined([exchange.wait() for exchange in returning]).unbind()
        return of_queries, of_keys, of_values, None, None
