"""Tests that a backward pass from a given gradient is bitwise identical to PyTorch's and imports fewer modules."""

import subprocess
import sys

import pytest
import torch

from hpcbench.parallel.start_backward import start_backward

HEAVY = ("sympy", "torch.fx.experimental.symbolic_shapes", "torch._dynamo")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_have_the_bits_of_pytorchs_backward(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(5)
    x, w, gradient = (torch.randn(*shape, generator=draw).to(dtype) for shape in ((6, 9), (9, 7), (6, 7)))
    gradients = []
    for start in (torch.Tensor.backward, start_backward):
        leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        result = torch.tanh(leaves[0] @ leaves[1]) * 1.7
        start(result, gradient)
        start(leaves[0] * 3, x)  # gradients are accumulated
        gradients.append([leaf.grad for leaf in leaves])
    for theirs, ours in zip(*gradients, strict=True):
        assert theirs is not None and ours is not None and theirs.abs().sum() > 0
        assert torch.equal(theirs, ours)


def imported_by(call: str) -> list[str]:
    """Return the slow modules that a separate interpreter imports when it calls a function on `y` and `g`."""
    code = (
        "import sys, torch\n"
        "from hpcbench.parallel.start_backward import start_backward\n"
        "y, g = torch.ones(3, requires_grad=True) * 2, torch.ones(3)\n"
        f"{call}\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.split()


def test_nothing_heavy_is_imported() -> None:
    assert imported_by("start_backward(y, g)") == []
    assert "sympy" in imported_by("y.backward(g)"), "PyTorch no longer imports it: remove start_backward"
