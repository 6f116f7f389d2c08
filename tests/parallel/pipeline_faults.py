"""Planted faults in pipelines and recomputation."""

from unittest.mock import patch

import torch
from planting import Patch, list_faults
from torch import Tensor, nn

from hpcbench.parallel import recompute
from hpcbench.parallel.pipeline import Alive, Pipeline
from hpcbench.train import build


def chunks_swapped() -> Patch:
    """A stage runs its layers in the order of the other chunk."""
    parts_of = build.parts_of

    def faulty(*arguments: object) -> list[nn.Module]:
        parts = parts_of(*arguments)
        parts[0].blocks, parts[-1].blocks = parts[-1].blocks, parts[0].blocks
        return parts

    return patch.object(build, "parts_of", faulty)


def chunk_gradient_dropped() -> Patch:
    """The first chunk of the first stage receives no gradient."""
    receive = Pipeline._receive

    def faulty(self: Pipeline, shape: tuple[int, ...], i: int, boundary: int, *, forward: bool) -> Tensor:
        x = receive(self, shape, i, boundary, forward=forward)
        return x if forward or boundary > 1 else torch.zeros_like(x)

    return patch.object(Pipeline, "_receive", faulty)


def other_micro_batch() -> Patch:
    """A gradient is sent as that of a neighboring micro-batch."""
    send = Pipeline._send

    def faulty(self: Pipeline, x: Tensor, i: int, boundary: int, *, forward: bool) -> None:
        send(self, x, i if forward else i ^ 1, boundary, forward=forward)

    return patch.object(Pipeline, "_send", faulty)


def weights_of_a_chunk_left_out() -> Patch:
    """The weights of a stage's second chunk receive no gradient. Gradients for other stages are correct."""
    backward = Pipeline._backward

    def faulty(self: Pipeline, alive: Alive, i: int, chunk: int) -> None:
        parameters = list(self._parts[chunk].parameters())
        before = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
        backward(self, alive, i, chunk)
        if chunk:
            for parameter, gradient in zip(parameters, before, strict=True):
                parameter.grad.copy_(gradient)

    return patch.object(Pipeline, "_backward", faulty)


def stale_input() -> Patch:
    """Recomputation always starts from the first input of the layer."""
    again = recompute.again
    first: dict[int, list[Tensor]] = {}

    def faulty(run: recompute.Run, inputs: list[Tensor], wanted: list[bool]) -> tuple[list[Tensor], Tensor]:
        return again(run, first.setdefault(id(run), inputs), wanted)

    return patch.object(recompute, "again", faulty)


FAULTS = list_faults(
    chunks_swapped,
    chunk_gradient_dropped,
    other_micro_batch,
    weights_of_a_chunk_left_out,
    stale_input,
)
