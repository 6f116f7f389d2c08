"""Attention to a block of keys. The results for several blocks can be merged.

The softmax result of a block and the logarithm of its denominator suffice to merge blocks exactly (online softmax). The
backward pass recomputes the probabilities of a block from the denominator of the whole row, so no scores are stored.
PyTorch's fused kernels compute both passes. Dtypes without a fused kernel use matrix products.

Shapes: b samples, a query heads, g key-value heads, n queries, m keys, d features per head. Each key-value head serves
a/g consecutive query heads.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Attended(NamedTuple):
    """The result of attention to a block of keys.

    Attributes
    ----------
    values
        Weighted sums of the values, [b, a, n, d].
    weight
        Log-sum-exp of the scores, [b, a, n], in fp32 or better.
    """

    values: Tensor
    weight: Tensor


class AttentionGradients(NamedTuple):
    """Gradients of queries, [b, a, n, d], and of keys and values, [b, g, m, d]."""

    queries: Tensor
    keys: Tensor
    values: Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Attended:
    """Compute the attention of queries [b, a, n, d] to keys and values [b, g, m, d].

    With a causal mask, each query attends only to keys up to its own index.
    """
    k, v = repeat_heads(k, q), repeat_heads(v, q)
    if q.device.type == "cpu":
        return Attended(*_ops()._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal))
    if q.dtype is torch.float64:
        return _attend(q, k, v, causal=causal)
    values, weight, *_ = _ops()._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
    return Attended(values, weight[..., : q.shape[2]])


def attend_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended, *, causal: bool
) -> AttentionGradients:
    """Compute the gradients of attention for one block of keys.

    Parameters
    ----------
    gradient
        Gradient of the attention output over all keys, [b, a, n, d].
    q, k, v, causal
        The arguments of `attend` for this block.
    attended
        The attention result of these queries over all keys.
    """
    groups = k.shape[1]
    by_head = _attend_backward_by_head(gradient, q, repeat_heads(k, q), repeat_heads(v, q), attended, causal=causal)
    return AttentionGradients(by_head.queries, sum_heads(by_head.keys, groups), sum_heads(by_head.values, groups))


def repeat_heads(x: Tensor, q: Tensor) -> Tensor:
    """Repeat each key or value head for the query heads that it serves: [b, g, m, d] -> [b, a, m, d]."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], dim=1)


def sum_heads(x: Tensor, groups: int) -> Tensor:
    """Sum the gradients of repeated heads: [b, a, m, d] -> [b, g, m, d]."""
    b, a, m, d = x.shape
    return x if a == groups else x.view(b, groups, a // groups, m, d).sum(dim=2)


def _attend_backward_by_head(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended, *, causal: bool
) -> AttentionGradients:
    """Compute `attend_backward` for one key-value head per query head."""
    values, weight = attended
    if q.device.type == "cpu":
        backward = _ops()._scaled_dot_product_flash_attention_for_cpu_backward
        return AttentionGradients(*backward(gradient, q, k, v, values, weight, 0.0, causal))
    if q.dtype is torch.float64:
        return _attend_backward(gradient, q, k, v, attended, causal=causal)
    none = torch.zeros((), dtype=torch.int64, device=q.device)  # state of the random generator, unused without dropout
    padded = torch.nn.functional.pad(weight, (0, -weight.shape[-1] % _WEIGHTS), value=math.inf)
    backward = _ops()._scaled_dot_product_efficient_attention_backward
    computed = backward(gradient, q, k, v, None, values, padded, none, none, 0.0, [True, True, True, False], causal)
    return AttentionGradients(*computed[:3])


_WEIGHTS = 32
"""The kernel requires each row of the log-sum-exp to be padded to a multiple of this number."""


def _ops() -> Any:
    return torch.ops.aten


def scores(q: Tensor, k: Tensor, *, causal: bool) -> Tensor:
    """Compute the scores [b, a, n, m] = Q K^T / sqrt(d) in fp32 or better. Masked scores are -inf."""
    k = repeat_heads(k, q)
    wide = torch.promote_types(q.dtype, torch.float32)
    computed = (q @ k.transpose(-1, -2)).to(wide) / math.sqrt(q.shape[-1])
    if causal:
        computed.masked_fill_(torch.ones(computed.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -math.inf)
    return computed


def _attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Attended:
    """Compute `attend` with matrix products."""
    computed = scores(q, k, causal=causal)
    weight = computed.logsumexp(dim=-1)
    return Attended((computed - weight[..., None]).exp().to(v.dtype) @ v, weight)


def _attend_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended, *, causal: bool
) -> AttentionGradients:
    """Compute `attend_backward` with matrix products.

    dS = P (dO V^T - rowsum(dO O)) / sqrt(d), dQ = dS K, dK = dS^T Q, dV = P^T dO.
    """
    shares = (scores(q, k, causal=causal) - attended.weight[..., None]).exp()
    mean = (gradient * attended.values).to(shares.dtype).sum(dim=-1, keepdim=True)
    slopes = shares * ((gradient @ v.transpose(-1, -2)).to(shares.dtype) - mean) / math.sqrt(q.shape[-1])
    slopes, shares = slopes.to(q.dtype), shares.to(q.dtype)
    return AttentionGradients(slopes @ k, slopes.transpose(-1, -2) @ q, shares.transpose(-1, -2) @ gradient)


class Online:
    """Attention to a growing set of keys. Each block is weighted by its share of the whole softmax.

    Parameters
    ----------
    first
        Attention of all queries to the first block.
    """

    def __init__(self, first: Attended) -> None:
        wide = torch.promote_types(first.values.dtype, torch.float32)
        self._dtype = first.values.dtype
        self._values, self._weight = first.values.to(wide, copy=True), first.weight.clone()

    def add(self, queries: slice, block: Attended) -> None:
        """Merge the result of another block for the given queries."""
        values, weight = self._values[:, :, queries], self._weight[:, :, queries]
        joined = torch.logaddexp(weight, block.weight)
        values.mul_((weight - joined).exp_()[..., None])
        values.addcmul_(block.values.to(values.dtype), (block.weight - joined).exp_()[..., None])
        weight.copy_(joined)

    @property
    def result(self) -> Attended:
        """Attention to all blocks added so far."""
        return Attended(self._values.to(self._dtype), self._weight)
