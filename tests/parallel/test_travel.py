"""Tests that computation overlaps with the transfer of rows to experts."""

from typing import Any

import torch
from torch import Tensor

from hpcbench.parallel.experts.travel import Counts, Way, arrive, start


class NamedChannel(str):
    """A channel that has only a name."""

    def describe(self, tensors: Any) -> "NamedChannel":
        return self


FORWARD, BACKWARD = NamedChannel("forward"), NamedChannel("backward")


class LoopbackGroup:
    """A single-rank group that sends to itself and records the events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def all_to_all(self, src: Any, dst: Any, counts: Any, *, channel: str) -> "LoopbackGroup":
        self.events.append(f"{channel} begins")
        self._channel, self._copy = channel, (dst, src.copy())
        dst[:] = float("nan")
        return self

    def in_background(self) -> "LoopbackGroup":
        return self

    def wait(self) -> None:
        into, values = self._copy
        into[:] = values
        self.events.append(f"{self._channel} ends")


class Noted(torch.autograd.Function):
    """An autograd function that doubles its input and records its passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, events: list[str]) -> Tensor:
        ctx.events = events
        events.append("shared forward")
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.events.append("shared backward")
        return 2 * gradients[0], None


def test_computation_between_the_halves_overlaps_forward_and_backward() -> None:
    group = LoopbackGroup()
    way: Any = Way(group, FORWARD, BACKWARD, True)  # type: ignore[arg-type]
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 4, dtype=torch.float64)
    coming = start(x * 1.0, way, Counts([3], [3]))
    shared = Noted.apply(x, group.events)  # type: ignore[no-untyped-call]
    rows = arrive(*coming)
    assert torch.equal(rows, x)
    (weight * rows * rows + shared).sum().backward()
    assert group.events[:3] == ["forward begins", "shared forward", "forward ends"]
    assert group.events[3:] == ["backward begins", "shared backward", "backward ends"]
    torch.testing.assert_close(x.grad, 2 * weight * x.detach() + 2)


def test_zero_rows_have_a_gradient() -> None:
    """The gradient of an expert without tokens exists and is zero."""
    way: Any = Way(LoopbackGroup(), FORWARD, BACKWARD, False)  # type: ignore[arg-type]
    x = torch.zeros(0, 4, dtype=torch.float64, requires_grad=True)
    layer = torch.nn.Linear(4, 2).double()
    layer(arrive(*start(x, way, Counts([0], [0])))).sum().backward()
    assert layer.weight.grad is not None and torch.equal(layer.weight.grad, torch.zeros(2, 4, dtype=torch.float64))
