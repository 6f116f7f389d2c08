"""Ring attention. Key-value blocks move around the ring, and each rank merges its attention results for all blocks.

A rank stores at most two blocks in addition to its own, and no scores (Liu et al., arXiv 2310.01889). In the backward
pass, keys and values move around the ring again, together with their gradients. Shapes: b samples, a query heads, g
key-value heads, m positions per rank, d features per head.
"""

from typing import Any

import torch
from torch import Tensor

from hpcbench.parallel.buffers import wire_dtype
from hpcbench.parallel.context.blocks import Attended, Online, attend, attend_backward
from hpcbench.parallel.context.passing import Homeward, Sharers, go_round
from hpcbench.parallel.context.places import pair


def ring_attention(q: Tensor, k: Tensor, v: Tensor, ranks: Sharers, *, causal: bool = True) -> Tensor:
    """Compute the attention of this rank's queries to the keys of all ranks, in zig-zag order.

    The shape of queries is [b, a, m, d]. The shape of keys and values is [b, g, m, d].
    """
    values: Tensor = _Ring.apply(q, k, v, ranks, causal)  # type: ignore[no-untyped-call]
    return values


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ranks: Sharers, causal: bool) -> Tensor:
        block_here, rank = torch.stack((k, v)), ranks.group.rank  # [2, b, g, m, d]
        online: Online | None = None
        for source, block in go_round(block_here, ranks):
            queries, keys, masked = pair(q.shape[2], rank, source, causal=causal)
            attended = attend(q[:, :, queries], *block[:, :, :, keys].unbind(), causal=masked)
            if online is None:
                online = Online(attended)
            else:
                online.add(queries, attended)
        assert online is not None
        values, weight = online.result
        ctx.ranks, ctx.causal = ranks, causal
        ctx.save_for_backward(q, block_here, values, weight)
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, block_here, values, weight = ctx.saved_tensors
        ranks, (gradient,) = ctx.ranks, gradients
        home = Homeward(ranks, block_here)
        of_queries = torch.zeros_like(q, dtype=wire_dtype(q.dtype))
        for source, block in go_round(block_here, ranks):
            queries, keys, masked = pair(q.shape[2], ranks.group.rank, source, causal=ctx.causal)
            rows = (slice(None), slice(None), queries)
            summands = attend_backward(
                *(gradient[rows], q[rows], *block[:, :, :, keys].unbind(), Attended(values[rows], weight[rows])),
                causal=masked,
            )
            of_queries[rows] += summands.queries
            summand = torch.zeros_like(block_here, dtype=of_queries.dtype)
            summand[0, :, :, keys], summand[1, :, :, keys] = summands.keys, summands.values
            home.add(summand)
        of_keys, of_values = home.at_home().to(q.dtype).unbind()
        return of_queries.to(q.dtype), of_keys, of_values, None, None
