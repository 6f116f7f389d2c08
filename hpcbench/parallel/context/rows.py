"""Ring self-attention with complete score rows (Li et al., arXiv 2105.13120). Keys are sent first, then values.

A rank stores the scores of its queries with all keys, so an ordinary softmax is sufficient. The scores are kept for the
backward pass, and memory grows as s^2 / p. Shapes: p ranks, b samples, a query heads, g key-value heads, m positions
per rank, s positions in total, d features per head.
"""

import math
from typing import Any

import torch
from torch import Tensor

from hpcbench.parallel.buffers import wire_dtype
from hpcbench.parallel.context.blocks import repeat_heads, scores, sum_heads
from hpcbench.parallel.context.passing import Homeward, Sharers, go_round
from hpcbench.parallel.context.places import pair


def row_attention(q: Tensor, k: Tensor, v: Tensor, ranks: Sharers, *, causal: bool = True) -> Tensor:
    """Compute the attention of this rank's queries to the keys of all ranks, in zig-zag order.

    The shape of queries is [b, a, m, d]. The shape of keys and values is [b, g, m, d].
    """
    values: Tensor = _Rows.apply(q, k, v, ranks, causal)  # type: ignore[no-untyped-call]
    return values


def _part(positions: int, ranks: Sharers, source: int, *, causal: bool) -> tuple[Any, slice, Any, bool]:
    """Return the slices of a block in queries, keys and score rows, and whether the block is masked."""
    queries, keys, masked = pair(positions, ranks.group.rank, source, causal=causal)
    columns = slice(source * positions + keys.start, source * positions + keys.stop)
    every = slice(None)
    return (every, every, queries), keys, (every, every, queries, columns), masked


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ranks: Sharers, causal: bool) -> Tensor:
        m, wide = q.shape[2], wire_dtype(q.dtype)
        scores_by_key = q.new_full((*q.shape[:3], m * ranks.group.size), -math.inf, dtype=wide)  # [b, a, m, s]
        for source, block in go_round(k, ranks):
            rows, keys, place, masked = _part(m, ranks, source, causal=causal)
            scores_by_key[place] = scores(q[rows], block[:, :, keys], causal=masked)
        shares = scores_by_key.softmax(dim=-1).to(q.dtype)
        total = torch.zeros_like(q, dtype=wide)
        for source, block in go_round(v, ranks):
            rows, keys, place, _ = _part(m, ranks, source, causal=causal)
            total[rows] += shares[place] @ repeat_heads(block[:, :, keys], q)
        ctx.ranks, ctx.causal = ranks, causal
        ctx.save_for_backward(q, k, v, shares)
        return total.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, shares = ctx.saved_tensors
        ranks, (gradient,) = ctx.ranks, gradients
        wide = wire_dtype(q.dtype)
        slopes = torch.zeros_like(shares, dtype=wide)
        home = Homeward(ranks, v)
        for source, block in go_round(v, ranks):
            rows, keys, place, _ = _part(q.shape[2], ranks, source, causal=ctx.causal)
            slopes[place] = (gradient[rows] @ repeat_heads(block[:, :, keys], q).transpose(-1, -2)).to(wide)
            summand = torch.zeros_like(v, dtype=wide)
            by_head = (shares[place].transpose(-1, -2) @ gradient[rows]).to(wide)
            summand[:, :, keys] = sum_heads(by_head, v.shape[1])
            home.add(summand)
        of_values = home.at_home()
        slopes -= (slopes * shares).sum(dim=-1, keepdim=True)
        slopes = (slopes.mul_(shares) / math.sqrt(q.shape[-1])).to(q.dtype)
        of_queries = torch.zeros_like(q, dtype=wide)
        home = Homeward(ranks, k)
        for source, block in go_round(k, ranks):
            rows, keys, place, _ = _part(q.shape[2], ranks, source, causal=ctx.causal)
            of_queries[rows] += slopes[place] @ repeat_heads(block[:, :, keys], q)
            summand = torch.zeros_like(k, dtype=wide)
            by_head = (slopes[place].transpose(-1, -2) @ q[rows]).to(wide)
            summand[:, :, keys] = sum_heads(by_head, k.shape[1])
            home.add(summand)
        return of_queries.to(q.dtype), home.at_home().to(q.dtype), of_values.to(q.dtype), None, None
