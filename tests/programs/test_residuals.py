"""Tests that residuals are found by call order within a step, otherwise by memory, and that their number is limited."""

import pytest
import torch

from hpcbench.programs import residuals
from hpcbench.programs.residuals import Residuals


def test_without_an_optimizer_a_call_is_identified_by_its_memory() -> None:
    residuals, a, b = Residuals(), torch.ones(8), torch.ones(8)
    first = residuals.of("sum", a)
    assert residuals.of("sum", b) is not first
    assert residuals.of("sum", a) is first
    assert residuals.of("scatter", a) is not first


def test_with_an_optimizer_a_call_is_identified_by_size_and_order() -> None:
    residuals = Residuals()
    by_memory = residuals.of("sum", torch.ones(8))
    residuals.stepped()
    steps = []
    for _ in range(3):
        gradients = [torch.ones(8), torch.ones(8), torch.ones(4)]  # new memory in each step
        steps.append([residuals.of("sum", gradient) for gradient in gradients])
        residuals.stepped()
    assert steps[0] == steps[1] == steps[2]
    assert len({id(residual) for residual in (*steps[0], by_memory)}) == 4


def test_within_a_backward_pass_the_order_starts_again() -> None:
    residuals, seen = Residuals(), []

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            seen.append(residuals.of("sum", gradient))
            return gradient

    for _ in range(2):
        x = torch.ones(8, requires_grad=True)
        Reduce.apply(Reduce.apply(x)).sum().backward()  # type: ignore[no-untyped-call]
    assert seen[:2] == seen[2:] and seen[0] is not seen[1]


def test_a_program_without_any_order_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residuals, "MOST", 3)
    store, tensors = Residuals(), [torch.ones(8) for _ in range(5)]
    first = store.of("sum", tensors[0])
    for tensor in tensors:
        store.of("sum", tensor)
    assert len(store._feedback) == 3
    assert store.of("sum", tensors[0]) is not first
