"""Helpers for the tests of attention over several ranks, shared with the worker."""

import math

import torch
from torch import Tensor

B, A, M, D = 2, 8, 6, 4
"""Samples, heads, positions per rank, and features per head."""
FAULTS = {
    "ring": ("mask_off_by_one_block", "blocks_never_weighed_again", "share_of_the_own_block", "sums_stay"),
    "rsa": ("mask_off_by_one_block", "stale_block", "sums_stay"),
    "ulysses": ("heads_in_another_order",),
}


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Return attention computed from its definition."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(dim=-1) @ v
