"""Attention of some queries to some keys, with what is needed to join it with attention to other keys.

The result of a softmax over some of the keys, and the logarithm of its denominator, are enough to join blocks exactly
(online softmax). For the backward pass the denominator of the whole row gives a block's probabilities again, so that no
scores are kept. PyTorch's fused kernels compute both; where there is none for a format, plain products do.

Shapes: b samples, a heads, n queries, m keys, d features of a head.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Attended(NamedTuple):
    """The result of attention to some keys.

    Attributes
    ----------
    values
        Weighted values [b, a, n, d].
    weight
        Logarithm of the sum of the exponentials of the scores, [b, a, n], in fp32 or better.
    """

    values: Tensor
    weight: Tensor


class Gradients(NamedTuple):
    """Gradients of queries [b, a, n, d], keys and values [b, a, m, d]."""

    queries: Tensor
    keys: Tensor
    values: Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Attended:
    """Attention of queries [b, a, n, d] to keys and values [b, a, m, d]. A causal query sees keys up to its number."""
    if q.device.type == "cpu":
        return Attended(*_ops()._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal))
    if q.dtype is torch.float64:
        return _attend(q, k, v, causal=causal)
    values, weight, *_ = _ops()._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
    return Attended(values, weight[..., : q.shape[2]])


def attend_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, whole: Attended, *, causal: bool) -> Gradients:
    """The part of a block in the gradients of attention.

    Parameters
    ----------
    gradient
        Gradient of the values of the whole rows, [b, a, n, d].
    q, k, v, causal
        The block, as for `attend`.
    whole
        The result for all keys, of these queries.
    """
    values, weight = whole
    if q.device.type == "cpu":
        backward = _ops()._scaled_dot_product_flash_attention_for_cpu_backward
        return Gradients(*backward(gradient, q, k, v, values, weight, 0.0, causal))
    if q.dtype is torch.float64:
        return _attend_backward(gradient, q, k, v, whole, causal=causal)
    none = torch.zeros((), dtype=torch.int64, device=q.device)  # a state of random numbers, which there are none of
    padded = torch.nn.functional.pad(weight, (0, -weight.shape[-1] % _WEIGHTS), value=math.inf)
    backward = _ops()._scaled_dot_product_efficient_attention_backward
    found = backward(gradient, q, k, v, None, values, padded, none, none, 0.0, [True, True, True, False], causal)
    return Gradients(*found[:3])


_WEIGHTS = 32
"""The kernel wants room for a multiple of so many weights in each row."""


def _ops() -> Any:
    return torch.ops.aten


def scores(q: Tensor, k: Tensor, *, causal: bool) -> Tensor:
    """Scores [b, a, n, m] in fp32 or better; those that a causal query does not see are minus infinity."""
    wide = torch.promote_types(q.dtype, torch.float32)
    found = (q @ k.transpose(-1, -2)).to(wide) / math.sqrt(q.shape[-1])
    if causal:
        found.masked_fill_(torch.ones(found.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -math.inf)
    return found


def _attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Attended:
    """`attend` by plain products."""
    found = scores(q, k, causal=causal)
    weight = found.logsumexp(dim=-1)
    return Attended((found - weight[..., None]).exp().to(v.dtype) @ v, weight)


def _attend_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, whole: Attended, *, causal: bool) -> Gradients:
    """`attend_backward` by plain products."""
    shares = (scores(q, k, causal=causal) - whole.weight[..., None]).exp()
    mean = (gradient * whole.values).to(shares.dtype).sum(dim=-1, keepdim=True)
    slopes = shares * ((gradient @ v.transpose(-1, -2)).to(shares.dtype) - mean) / math.sqrt(q.shape[-1])
    slopes, shares = slopes.to(q.dtype), shares.to(q.dtype)
    return Gradients(slopes @ k, slopes.transpose(-1, -2) @ q, shares.transpose(-1, -2) @ gradient)


class Online:
    """Attention to more and more keys: blocks are joined with the weights that they have in the whole softmax.

    Parameters
    ----------
    first
        Attention to the first block, of all queries.
    """

    def __init__(self, first: Attended) -> None:
        wide = torch.promote_types(first.values.dtype, torch.float32)
        self._dtype = first.values.dtype
        self._values, self._weight = first.values.to(wide, copy=True), first.weight.clone()

    def add(self, queries: slice, block: Attended) -> None:
        """Join another block, of some of the queries."""
        values, weight = self._values[:, :, queries], self._weight[:, :, queries]
        joined = torch.logaddexp(weight, block.weight)
        values.mul_((weight - joined).exp_()[..., None])
        values.addcmul_(block.values.to(values.dtype), (block.weight - joined).exp_()[..., None])
        weight.copy_(joined)

    @property
    def result(self) -> Attended:
        """Attention to all keys so far."""
        return Attended(self._values.to(self._dtype), self._weight)
