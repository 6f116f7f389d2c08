"""Tests that attention to a block of keys, and its gradients, agree with fp64 on the CPU.

On a GPU, PyTorch's operators for fp32 and bf16 differ from those on the CPU.
"""

import pytest
import torch

from hpcbench.parallel.context.blocks import attend, attend_backward

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 3e-2}
"""Relative differences that are allowed."""
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no GPU")]


def attention(inputs: list[torch.Tensor], device: str, dtype: torch.dtype, *, causal: bool) -> list[torch.Tensor]:
    """Return values, weights, and the gradients of queries, keys and values."""
    q, k, v, gradient = (x.to(device, dtype) for x in inputs)
    attended = attend(q, k, v, causal=causal)
    computed = [*attended, *attend_backward(gradient, q, k, v, attended, causal=causal)]
    return [x.cpu().double() for x in computed]


@pytest.mark.parametrize(("n", "m", "causal"), [(96, 96, True), (96, 96, False), (40, 72, False), (130, 130, True)])
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_a_block_agrees_with_fp64(device: str, dtype: torch.dtype, n: int, m: int, causal: bool) -> None:
    generator = torch.Generator().manual_seed(n)
    shapes = ((2, 4, n, 16), (2, 2, m, 16), (2, 2, m, 16), (2, 4, n, 16))  # two query heads per key head
    inputs = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    expected = attention(inputs, "cpu", torch.float64, causal=causal)
    for computed, exact in zip(attention(inputs, device, dtype, causal=causal), expected, strict=True):
        assert float((computed - exact).norm() / exact.norm()) < BOUNDS[dtype]
