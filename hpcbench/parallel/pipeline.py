"""Execution of a pipeline schedule on one stage, which receives, computes and sends."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hpcbench.comm.policy import Policy
from hpcbench.comm.work import Work
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.boundary_errors import BoundaryErrors
from hpcbench.parallel.buffers import from_buffer, room, to_buffer
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.message_order import OrderedMessages, StageMessage, order_messages
from hpcbench.parallel.phases import Phases
from hpcbench.parallel.sample_changes import SampleChanges
from hpcbench.parallel.schedule import Action
from hpcbench.parallel.start_backward import start_backward

Loss = Callable[[Tensor, Tensor], Tensor]

_TAGS = 1 << 15
"""Number of MPI tags that every MPI library supports."""


class MicroBatch(NamedTuple):
    """Input tokens and target tokens, both int64 [b, s], and the indices of the training samples."""

    inputs: Tensor
    targets: Tensor
    samples: tuple[int, ...] = ()
    """Indices of the training samples. A sample that recurs has the same index."""


class Alive(NamedTuple):
    """Tensors that a forward pass keeps for its backward pass."""

    source: Tensor
    result: Tensor


class Receive(NamedTuple):
    """A receive in progress, and the buffer for the received values."""

    work: Work
    buffer: Any


class Pipeline:
    """One stage of a pipeline.

    Parameters
    ----------
    parts
        Chunks of the stage, in model order. The input of a chunk is tokens or activations, and the output is
        activations or logits.
    mesh
        Mesh whose ``pp`` group contains the stages.
    policy
        Policy that provides the channels of activations and of activation gradients.
    shape
        Function that returns the shape of the activations between stages, given the numbers of samples and positions.
    dtype, device
        Dtype and device of the activations.
    loss
        Function that computes the mean loss from logits and targets, used on the last part.

    Attributes
    ----------
    errors : BoundaryErrors
        Errors of the gradients sent so far, which are added to the next gradients.
    changes : SampleChanges
        Activations that were sent or received so far, from which changes are computed.
    most_alive : int
        Maximum number of (micro-batch, chunk) pairs that waited for their backward pass at the same time.
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
        self.errors = BoundaryErrors(self._backward_channel, self._like)
        self.changes = SampleChanges(self._forward_channel, self._like)
        self._samples: list[tuple[int, ...]] = []
        self._sendings: list[Work] = []
        self._ordered: OrderedMessages[Receive] | None = None
        self._orders: dict[tuple[Action, ...], list[StageMessage]] = {}
        self.most_alive = 0
        self._phases = Phases()

    def run(
        self,
        actions_of: Callable[[int], Iterable[Action]],
        batches: Sequence[MicroBatch],
        *,
        loss_scale: float = 1.0,
        phases: Phases | None = None,
    ) -> list[float]:
        """Execute the actions, and accumulate the gradients of ``loss_scale`` times the mean loss in the parameters.

        Parameters
        ----------
        actions_of
            Function that returns the actions of a stage.
        batches
            The micro-batches, indexed by the numbers in the actions.
        loss_scale
            Factor that scales the mean loss.
        phases
            Phases to which the times of forward passes, backward passes and bubbles are added.

        Returns
        -------
        On the last stage, the mean loss of each micro-batch in nats. On other stages, the list is empty.
        """
        alive: dict[tuple[int, int], Alive] = {}
        losses: list[Tensor] = []
        times = self._phases = phases or Phases()
        self._samples = [batch.samples for batch in batches]
        self._ordered = self._order(actions_of, batches) if self._pp.needs_order else None
        begin = times.clock.mark()
        for work, i, chunk in actions_of(self._stage):
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
        self.changes.finish()
        return [float(loss) for loss in losses]  # only at the end, because each conversion waits for the GPU

    def collect_sendings(self) -> None:
        """Count the messages that have been sent, and free their memory."""
        self._sendings = _collect(self._sendings)

    def _part(self, chunk: int) -> int:
        """Return the index of the chunk among the parts of the model."""
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

    def _order(
        self, actions_of: Callable[[int], Iterable[Action]], batches: Sequence[MicroBatch]
    ) -> OrderedMessages[Receive]:
        """Return the messages of a run in the order in which all stages start them."""
        stages, key = self._stages, tuple(actions_of(self._stage))
        if key not in self._orders:  # training and evaluation have the same actions in each step
            actions = [actions_of(stage) for stage in range(stages)]
            self._orders[key] = order_messages(actions, len(self._parts) * stages)

        def receive(message: StageMessage) -> Receive:
            i, boundary, forward = message
            return self._start_receive(self._shape(*batches[i].inputs.shape), i, boundary, forward=forward)

        return OrderedMessages(self._orders[key], self._stage, stages, receive)

    def _send(self, x: Tensor, i: int, boundary: int, *, forward: bool) -> None:
        """Send a tensor asynchronously across the boundary between parts `boundary` - 1 and `boundary`."""
        channel = self._forward_channel if forward else self._backward_channel
        peer = (self._stage + (1 if forward else -1)) % self._stages
        tag = self._tag(i, boundary, forward=forward)

        def start() -> None:
            error = None if forward else self.errors.of(boundary, x.numel())
            decodes = forward and self.changes.active
            buffer = self.changes.subtract(x, boundary, self._samples[i]) if decodes else to_buffer(x)
            message = self._pp.send(
                buffer, peer, tag=tag, channel=channel.describe(x.shape), feedback=error, decodes=decodes
            )
            self._sendings.append(message.in_background())

        if self._ordered is None:
            start()
        else:
            self._ordered.send(StageMessage(i, boundary, forward), start)

    def _receive(self, shape: tuple[int, ...], i: int, boundary: int, *, forward: bool) -> Tensor:
        clock = self._phases.clock
        begin = clock.mark()
        if self._ordered is None:
            work, buffer = self._start_receive(shape, i, boundary, forward=forward)
        else:
            work, buffer = self._ordered.take(StageMessage(i, boundary, forward))
        work.wait()
        self._phases.count("bubble", begin, clock.mark(), out_of="forward" if forward else "backward")
        if forward and self.changes.active:
            buffer = self.changes.add(buffer, boundary, self._samples[i])
        return from_buffer(buffer, self._like)

    def _start_receive(self, shape: tuple[int, ...], i: int, boundary: int, *, forward: bool) -> Receive:
        channel = self._forward_channel if forward else self._backward_channel
        peer = (self._stage - (1 if forward else -1)) % self._stages
        buffer = room(shape, like=self._like)
        tag = self._tag(i, boundary, forward=forward)
        return Receive(self._pp.recv(buffer, peer, tag=tag, channel=channel), buffer)

    def _tag(self, i: int, boundary: int, *, forward: bool) -> int:
        return tag(i, boundary, forward=forward, parts=len(self._parts) * self._stages)


def tag(i: int, boundary: int, *, forward: bool, parts: int) -> int:
    """Return the MPI tag of micro-batch `i`'s message across one of `parts` boundaries.

    Tags are reused after some micro-batches, so a small number of tags suffices. Messages with the same boundary and
    direction are sent in the order in which they are received, so MPI matches messages with equal tags correctly.
    """
    return 2 * (i % (_TAGS // 2 // parts) * parts + boundary) + forward


def _collect(sendings: list[Work]) -> list[Work]:
    """Count the messages that have been sent, free their memory, and return the messages that are still being sent."""
    left = [sending for sending in sendings if not sending.done]
    for sending in sendings:
        if sending not in left:
            sending.wait()
    return left
