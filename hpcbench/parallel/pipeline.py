"""The pipeline: execution of a schedule on one stage, which receives, computes and sends."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hpcbench.comm.policy import Policy
from hpcbench.comm.work import Work
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.buffers import from_buffer, room, to_buffer
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.phases import Phases
from hpcbench.parallel.schedule import Action
from hpcbench.parallel.start_backward import start_backward

Loss = Callable[[Tensor, Tensor], Tensor]

_TAGS = 1 << 15
"""Number of tags that every MPI library has."""


class MicroBatch(NamedTuple):
    """Tokens, and the tokens that follow them, each [b, s] of int64."""

    inputs: Tensor
    targets: Tensor


class Alive(NamedTuple):
    """Values that a forward pass keeps for its backward pass."""

    source: Tensor
    result: Tensor


class Pipeline:
    """One stage of a pipeline.

    Parameters
    ----------
    parts
        The stage's chunks, first to last: tokens or activations in, activations or logits out.
    mesh
        Mesh whose ``pp`` group joins the stages.
    policy
        Policy that gives the channels of the activations and of their gradients.
    shape
        Function that returns the shape of the activations between stages, for a number of samples and of positions.
    dtype, device
        Number format and device of the activations.
    loss
        Mean loss of logits and targets, used on the last part.

    Attributes
    ----------
    most_alive : int
        Largest number of (micro-batch, chunk) pairs that waited for their backward pass at a time.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        *,
        mesh: Mesh,
        policy: Policy,
        shape: Callable[[int, int], tuple[int, ...]],
        dtype: torch.dtype,
        device: str,
        loss: Loss,
    ) -> None:
        self._parts = parts
        self._stage, self._stages = mesh.pp.rank, mesh.pp.size
        self._pp = mesh.pp
        self._forward_channel = policy.channel(Dimension.PP, Phase.FORWARD, MessageKind.ACT)
        self._backward_channel = policy.channel(Dimension.PP, Phase.BACKWARD, MessageKind.GRAD)
        self._shape = shape
        self._like = torch.empty(0, dtype=dtype, device=device)
        self._loss = loss
        self._sendings: list[Work] = []
        self.most_alive = 0
        self._phases = Phases()

    def run(
        self,
        actions: Iterable[Action],
        batches: Sequence[MicroBatch],
        *,
        loss_scale: float = 1.0,
        phases: Phases | None = None,
    ) -> list[float]:
        """Execute the actions; gradients of ``loss_scale`` x the mean loss accumulate in the parameters.

        Parameters
        ----------
        actions
            Actions of this stage.
        batches
            The micro-batches, by the numbers in the actions.
        loss_scale
            Factor of the mean loss.
        phases
            Phases that the seconds of forward, backward and bubble are added to.

        Returns
        -------
        The mean loss of each micro-batch in nats on the last stage, nothing on the others.
        """
        alive: dict[tuple[int, int], Alive] = {}
        losses: list[Tensor] = []
        times = self._phases = phases or Phases()
        begin = times.clock.mark()
        for work, i, chunk in actions:
            self.collect_sendings()
            if work == "forward":
                source, result = self._forward(batches[i], i, chunk)
                if self._is_last(chunk):
                    losses.append(result.detach())
                    result = result * (loss_scale / len(batches))
                if torch.is_grad_enabled():
                    alive[i, chunk] = Alive(source, result)
                    self.most_alive = max(self.most_alive, len(alive))
            else:
                self._backward(alive.pop((i, chunk)), i, chunk)
            end = times.clock.mark()
            times.count(work, begin, end, of=(i, chunk))
            begin = end
        for sending in self._sendings:
            sending.wait()
        self._sendings = []
        return [float(loss) for loss in losses]  # at the end only: each conversion waits for the GPU

    def collect_sendings(self) -> None:
        """Count the messages that have left, and free their memory."""
        self._sendings = _collect(self._sendings)

    def _part(self, chunk: int) -> int:
        """Return the number of the chunk among the model's parts."""
        return chunk * self._stages + self._stage

    def _is_last(self, chunk: int) -> bool:
        return self._part(chunk) == len(self._parts) * self._stages - 1

    def _forward(self, batch: MicroBatch, i: int, chunk: int) -> tuple[Tensor, Tensor]:
        source, part = batch.inputs, self._part(chunk)
        if part:
            source = self._receive(self._shape(*batch.inputs.shape), i, part, forward=True)
            source.requires_grad_(torch.is_grad_enabled())
        result = self._parts[chunk](source)
        if self._is_last(chunk):
            return source, self._loss(result, batch.targets)
        self._send(result, i, part + 1, forward=True)
        return source, result

    def _backward(self, alive: Alive, i: int, chunk: int) -> None:
        source, result = alive
        part = self._part(chunk)
        if self._is_last(chunk):
            result.backward()  # type: ignore[no-untyped-call]
        else:
            gradient = self._receive(tuple(result.shape), i, part + 1, forward=False)
            start_backward(result, gradient)
        if part:
            assert source.grad is not None
            self._send(source.grad, i, part, forward=False)

    def _send(self, x: Tensor, i: int, boundary: int, *, forward: bool) -> None:
        """Send the tensor at the boundary between part `boundary` and the one before it, in the background."""
        channel = self._forward_channel if forward else self._backward_channel
        peer = (self._stage + (1 if forward else -1)) % self._stages
        tag = self._tag(i, boundary, forward=forward)
        message = self._pp.send(to_buffer(x), peer, tag=tag, channel=channel.describe(x.shape))
        self._sendings.append(message.in_background())

    def _receive(self, shape: tuple[int, ...], i: int, boundary: int, *, forward: bool) -> Tensor:
        clock = self._phases.clock
        begin = clock.mark()
        channel = self._forward_channel if forward else self._backward_channel
        peer = (self._stage - (1 if forward else -1)) % self._stages
        buffer = room(shape, like=self._like)
        self._pp.recv(buffer, peer, tag=self._tag(i, boundary, forward=forward), channel=channel).wait()
        self._phases.count("bubble", begin, clock.mark(), out_of="forward" if forward else "backward")
        return from_buffer(buffer, self._like)

    def _tag(self, i: int, boundary: int, *, forward: bool) -> int:
        return tag(i, boundary, forward=forward, parts=len(self._parts) * self._stages)


def tag(i: int, boundary: int, *, forward: bool, parts: int) -> int:
    """Return the MPI tag of micro-batch `i`'s message across one of `parts` boundaries.

    A tag is used again after some micro-batches, so that few tags are enough. Messages of one boundary and direction
    are sent in the order in which they are received, so that MPI keeps messages with equal tags apart.
    """
    return 2 * (i % (_TAGS // 2 // parts) * parts + boundary) + forward


def _collect(sendings: list[Work]) -> list[Work]:
    """Count the messages that have left, free their memory, and return the other messages."""
    left = [sending for sending in sendings if not sending.done]
    for sending in sendings:
        if sending not in left:
            sending.wait()
    return left
