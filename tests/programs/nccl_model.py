"""A model of NCCL on top of the stream model. A collective runs on its own stream once all ranks have called it."""

from dataclasses import dataclass
from typing import Any

import torch
from stream_model import Cuda, Event, Model, Stream, find_place
from streams import Collectives
from torch.utils._python_dispatch import _disable_current_modes

from hpcbench.programs.stream_order import CudaOrder


@dataclass
class Made:
    """One rank's part of a collective."""

    name: str
    received: list[int]
    sent: list[int]
    out: torch.Tensor
    src: torch.Tensor
    place: str
    reached: bool = False
    done: bool = False


@dataclass
class Handle:
    """A handle for a collective or operation. `wait` makes the current stream wait for the operation."""

    event: Event
    result: Any = None

    def wait(self) -> None:
        self.event.wait()


class Communicator(Collectives[Made]):
    """The collectives of all ranks of a group, in call order."""

    def __init__(self, model: Model, ranks: int) -> None:
        super().__init__(ranks)
        self.model = model


class RankGroup:
    """The backend of one rank, with the methods of ProcessGroupNCCL that the carrier calls."""

    def __init__(self, communicator: Communicator, rank: int) -> None:
        self._communicator, self._rank = communicator, rank
        self._stream: Stream | None = None

    def alltoall_base(
        self, out: torch.Tensor, src: torch.Tensor, received: list[int], sent: list[int], options: Any
    ) -> Handle:
        return self._make("all-to-all", out, src, received, sent)

    def _allgather_base(self, out: torch.Tensor, src: torch.Tensor, options: Any) -> Handle:
        sizes = [src.numel()] * self._communicator.ranks
        assert out.numel() == sum(sizes)
        return self._make("all-gather", out, src, sizes, sizes)

    def _make(self, name: str, out: torch.Tensor, src: torch.Tensor, received: list[int], sent: list[int]) -> Handle:
        communicator, model, me = self._communicator, self._communicator.model, self._rank
        assert out.dtype == src.dtype == torch.uint8
        place = find_place(f"{name} of rank {self._rank}")
        if self._stream is None:
            self._stream = model.new_stream("nccl")
        self._stream.wait_stream(model.current)
        with _disable_current_modes():
            collective = Made(name, received, sent, model._shadow(out), model._shadow(src), place)

        def fits(other: Made, peer: int) -> bool:
            return (other.name, other.sent[me], other.received[me]) == (name, received[peer], sent[peer])

        everyone = communicator.join(me, collective, fits)

        def run() -> bool:
            collective.reached = True
            if not communicator.can_run(everyone):
                return False
            if not collective.done:  # for all ranks at once, because later work of a rank may modify what it has sent
                for rank in everyone:
                    receive(rank, everyone)
            return True

        count = self._stream.put(place, run)
        model.use(src, self._stream, count, False, place)
        model.use(out, self._stream, count, True, place)
        return Handle(Event(model, self._stream))


def receive(rank: int, everyone: dict[int, Made]) -> None:
    """Copy the data sent by all ranks into the memory of one rank."""
    collective, at = everyone[rank], 0
    for peer in range(len(everyone)):
        other = everyone[peer]
        start = sum(other.sent[:rank]) if collective.name == "all-to-all" else 0
        collective.out[at : at + collective.received[peer]] = other.src[start : start + collective.received[peer]]
        at += collective.received[peer]
    collective.done = True


class ModelOrder(CudaOrder):
    """The ordering of work on a GPU of the model, with an event instead of PyTorch's future."""

    def __init__(self, model: Model) -> None:
        self.cuda = Cuda(model)
        super().__init__(torch.device("cuda", 0), self.cuda)
        self._model = model

    def make_handle(self, result: Any) -> Any:
        return Handle(Event(self._model, self._model.current), result)
