"""Tests that attention to a block of keys, and its gradients, agree with dense attention in fp64 on the CPU.

On a GPU, PyTorch's operators for fp32 and bf16 differ from those on the CPU.
"""

import math

import pytest
import torch
from attention_cases import dense

from hpcbench.parallel.context.blocks import attend, attend_backward

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 3e-2}
"""Relative differences that are allowed."""
NO_GPU = "" if torch.cuda.is_available() else "PyTorch finds no GPU on this machine"
GPU = [pytest.mark.gpu, pytest.mark.skipif(bool(NO_GPU), reason=NO_GPU)]
GROUP = 2
"""Number of query heads per key-value head."""


def by_definition(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gradient: torch.Tensor, *, causal: bool):
    """Return values, weights, and the gradients of queries, keys and values, from dense attention and autograd."""
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    queries, keys, values = leaves[0], *(x.repeat_interleave(GROUP, dim=1) for x in leaves[1:])
    attended = dense(queries, keys, values, causal=causal)
    attended.backward(gradient.double())
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return [x.detach() for x in (attended, scores.logsumexp(dim=-1))] + [x.grad for x in leaves]


@pytest.mark.parametrize(("n", "m", "causal"), [(96, 96, True), (96, 96, False), (40, 72, False), (130, 130, True)])
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_a_block_agrees_with_dense_attention(device: str, dtype: torch.dtype, n: int, m: int, causal: bool) -> None:
    generator = torch.Generator().manual_seed(n)
    shapes = ((2, 2 * GROUP, n, 16), (2, 2, m, 16), (2, 2, m, 16), (2, 2 * GROUP, n, 16))
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    q, k, v, gradient = (x.to(device) for x in inputs)
    attended = attend(q, k, v, causal=causal)
    computed = [*attended, *attend_backward(gradient, q, k, v, attended, causal=causal)]
    for result, exact in zip(computed, by_definition(*inputs, causal=causal), strict=True):
        assert float((result.cpu().double() - exact).norm() / exact.norm()) < BOUNDS[dtype]
