"""Executes a schedule on one stage of a pipeline: receives, computes, sends on."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hpcbench.comm.channel import Dimension, Kind, Phase
from hpcbench.comm.policy import Policy
from hpcbench.comm.work import Work
from hpcbench.parallel.buffers import from_host, to_host, wire_dtype
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.schedule import Action

Loss = Callable[[Tensor, Tensor], Tensor]


class MicroBatch(NamedTuple):
    """Tokens and the tokens that follow them, each [b, s] of int64."""

    inputs: Tensor
    targets: Tensor


class Pipeline:
    """One stage.

    Parameters
    ----------
    module
        The stage: tokens or activations in, activations or logits out.
    mesh
        Its ``pp`` group joins the stages.
    policy
        Gives the channels of the activations and of their gradients.
    hidden
        Width of the activations that stages exchange.
    parts
        Ranks that their positions are spread over: stages exchange [b, s/parts, hidden].
    dtype, device
        Of the activations.
    loss
        Mean loss of logits and targets, used on the last stage.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        mesh: Mesh,
        policy: Policy,
        hidden: int,
        parts: int = 1,
        dtype: torch.dtype,
        device: str,
        loss: Loss,
    ) -> None:
        self._module = module
        self._mesh = mesh
        self._forward_channel = policy.channel(Dimension.PP, Phase.FORWARD, Kind.ACT)
        self._backward_channel = policy.channel(Dimension.PP, Phase.BACKWARD, Kind.GRAD)
        self._hidden, self._parts = hidden, parts
        self._like = torch.empty(0, dtype=dtype, device=device)
        self._loss = loss

    def run(self, actions: Iterable[Action], batches: Sequence[MicroBatch], *, loss_scale: float = 1.0) -> list[float]:
        """Execute the actions; gradients of ``loss_scale`` x the mean loss accumulate in the parameters.

        Returns
        -------
        The mean loss of each micro-batch in nats on the last stage, nothing on the others.
        """
        alive: dict[int, tuple[Tensor, Tensor]] = {}
        sendings: list[Work] = []
        losses: list[float] = []
        for work, i in actions:
            sendings = _collect(sendings)
            if work == "forward":
                source, result = self._forward(batches[i], i, sendings)
                if self._mesh.last_stage:
                    losses.append(float(result.detach()))
                    result = result * (loss_scale / len(batches))
                if torch.is_grad_enabled():
                    alive[i] = source, result
            else:
                self._backward(*alive.pop(i), i, sendings)
        for sending in sendings:
            sending.wait()
        return losses

    def _forward(self, batch: MicroBatch, i: int, sendings: list[Work]) -> tuple[Tensor, Tensor]:
        source = batch.inputs
        if not self._mesh.first_stage:
            b, s = batch.inputs.shape
            shape = (b, s // self._parts, self._hidden)
            source = self._receive(shape, self._mesh.pp.rank - 1, i, forward=True)
            source.requires_grad_(torch.is_grad_enabled())
        result = self._module(source)
        if self._mesh.last_stage:
            return source, self._loss(result, batch.targets)
        sendings.append(self._send(result, self._mesh.pp.rank + 1, i, forward=True))
        return source, result

    def _backward(self, source: Tensor, result: Tensor, i: int, sendings: list[Work]) -> None:
        if self._mesh.last_stage:
            result.backward()  # type: ignore[no-untyped-call]
        else:
            gradient = self._receive(tuple(result.shape), self._mesh.pp.rank + 1, i, forward=False)
            result.backward(gradient)  # type: ignore[no-untyped-call]
        if not self._mesh.first_stage:
            assert source.grad is not None
            sendings.append(self._send(source.grad, self._mesh.pp.rank - 1, i, forward=False))

    def _send(self, x: Tensor, peer: int, i: int, *, forward: bool) -> Work:
        channel = self._forward_channel if forward else self._backward_channel
        return self._mesh.pp.send(to_host(x), peer, tag=2 * i + forward, channel=channel).in_background()

    def _receive(self, shape: tuple[int, ...], peer: int, i: int, *, forward: bool) -> Tensor:
        channel = self._forward_channel if forward else self._backward_channel
        host = torch.empty(shape, dtype=wire_dtype(self._like.dtype)).numpy()
        self._mesh.pp.recv(host, peer, tag=2 * i + forward, channel=channel).wait()
        return from_host(host, self._like)


def _collect(sendings: list[Work]) -> list[Work]:
    """Count the messages that have left and let go of their memory; returns the others."""
    left = [sending for sending in sendings if not sending.done]
    for sending in sendings:
        if sending not in left:
            sending.wait()
    return left
