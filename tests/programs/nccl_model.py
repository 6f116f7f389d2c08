"""A model of NCCL on top of the stream model. A collective runs on its own stream once all ranks have reached it."""

from dataclasses import dataclass, field
from typing import Any

import torch
from stream_model import Cuda, Event, Model, Stream, StreamError, find_place
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
    """A handle for a collective or operation. `wait` makes the current stream wait for it."""

    event: Event
    result: Any = None

    def wait(self) -> None:
        self.event.wait()


@dataclass
class Communicator:
    """The collectives of all ranks of a group, in call order."""

    model: Model
    ranks: int
    collectives: list[dict[int, Made]] = field(default_factory=list)

    def check(self) -> None:
        """Raise an error if a collective lacks a rank."""
        for everyone in self.collectives:
            if len(everyone) < self.ranks:
                lacking = sorted(set(range(self.ranks)) - set(everyone))
                places = ", ".join(collective.place for collective in everyone.values())
                raise StreamError(f"ranks {lacking} never make the collective of {places}")


class RankGroup:
    """A backend for one rank, with the methods of ProcessGroupNCCL that the carrier calls."""

    def __init__(self, communicator: Communicator, rank: int) -> None:
        self._communicator, self._rank, self._count = communicator, rank, 0
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
        model, ranks = self._communicator.model, self._communicator.ranks
        assert out.dtype == src.dtype == torch.uint8
        place = find_place(f"{name} of rank {self._rank}")
        if self._stream is None:
            self._stream = model.new_stream("nccl")
        self._stream.wait_stream(model.current)
        with _disable_current_modes():
            collective = Made(name, received, sent, model._shadow(out), model._shadow(src), place)
        if self._count == len(self._communicator.collectives):
            self._communicator.collectives.append({})
        everyone = self._communicator.collectives[self._count]
        for peer, other in everyone.items():
            if (other.name, other.sent[self._rank], other.received[self._rank]) != (name, received[peer], sent[peer]):
                raise StreamError(f"collective {self._count} differs between ranks: {place}, and {other.place}")
        everyone[self._rank] = collective
        self._count += 1

        def run() -> bool:
            collective.reached = True
            if len(everyone) < ranks or not all(other.reached for other in everyone.values()):
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
    """Copy the data that all ranks have sent into the memory of one rank."""
    collective, at = everyone[rank], 0
    for peer in range(len(everyone)):
        other = everyone[peer]
        start = sum(other.sent[:rank]) if collective.name == "all-to-all" else 0
        collective.out[at : at + collective.received[peer]] = other.src[start : start + collective.received[peer]]
        at += collective.received[peer]
    collective.done = True


class ModelOrder(CudaOrder):
    """The order of a GPU in the model. An event replaces PyTorch's future."""

    def __init__(self, model: Model) -> None:
        self.cuda = Cuda(model)
        super().__init__(torch.device("cuda", 0), self.cuda)
        self._model = model

    def make_handle(self, result: Any) -> Any:
        return Handle(Event(self._model, self._model.current), result)
