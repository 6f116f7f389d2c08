"""A strict device for training in host memory: each MPI rank models CUDA streams, and NCCL is modeled over MPI.

Kernels of codecs and NCCL's operations are queued on the streams of `strict_nccl` and run late, in adversarial order.
PyTorch computes immediately on the caller's stream, so other streams run only as far as the caller's stream has waited
for them. Every access of PyTorch, and of the optimizer's kernel, to a tensor is checked. Errors are collected and the
training continues, because the other ranks would wait for a rank that ends early. An operation of NCCL runs on MPI
requests once all its ranks have reached it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from mpi4py import MPI
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

sys.path.insert(0, str(Path(__file__).parents[1] / "comm"))
from emulated_accelerator import seen
from streams import StreamError, Use, find_place, merge
from strict_nccl import (
    CALLER,
    Model,
    Part,
    StrictAccelerator,
    StrictCommunicator,
    StrictDevice,
    StrictEvent,
    World,
    with_strict_codecs,
)

from hpcbench.codecs.device import View
from hpcbench.comm.accelerator import Accelerator, DeviceArray, StreamEvent
from hpcbench.comm.memory import Slice
from hpcbench.comm.native import Library
from hpcbench.comm.nccl import OPERATIONS
from hpcbench.parallel import buffers, flat

Launch = tuple[str, frozenset[int]]
"""A communicator and the world ranks that take part in an operation."""
STALLED_S = 60
"""Timeout in seconds, after which operations that cannot run cause an error."""


class RankModel(Model):
    """The streams of one rank. Queued work runs only as far as the host or the caller's stream needs.

    Attributes
    ----------
    host_waits : set of str
        Source lines in which the host waited for the device.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.order = seed, Random(seed)
        self.host_waits: set[str] = set()

    def run_until(self, ended: Callable[[], bool]) -> None:
        """Run queued work until a condition is met.

        The work may have to wait until other ranks reach their operations.
        """
        limit = time.monotonic() + STALLED_S
        while not ended():
            if self.run_one(self.seed, self.order):
                limit = time.monotonic() + STALLED_S
            elif time.monotonic() > limit:
                raise StreamError("no stream can continue: " + "; ".join(s.todo[0][0] for s in self.pending))
            else:
                time.sleep(1e-4)  # other ranks share the core


class HostEvent(StrictEvent):
    """An event for which the host may wait. The model records the source line of each wait."""

    model: RankModel

    def wait(self) -> None:
        self.model.host_waits.add(find_place("wait"))
        self.model.run_until(lambda: self.event.reached)
        self.event.query()


class TensorDevice(StrictDevice):
    def view(self, name: str, array: Any, stream: int) -> View:
        if not isinstance(array, torch.Tensor):
            return super().view(name, array, stream)
        assert array.is_contiguous()
        return View(array.data_ptr(), array.numel(), np.dtype(str(array.dtype).removeprefix("torch.")), True)


class TrainingDevice(StrictAccelerator):
    """The device of this rank, which treats tensors in host memory as its own.

    Attributes
    ----------
    errors : list of str
        Conflicting accesses that no event orders, each with the names of both operations.
    """

    model: RankModel

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__(RankModel(seed), rank)
        self.codecs = TensorDevice(self)
        self.caller = self._streams[CALLER]
        self.communicators: list[MpiNccl] = []
        self.errors: list[str] = []
        self.launches: list[Launch] = []

    array = Accelerator.array

    def put(self, stream: int, what: str, work: Callable[[], object]) -> int:
        number = super().put(stream, what, work)
        if stream == CALLER:
            self._run_caller()
        return number

    def mark(self, stream: int) -> HostEvent:
        return HostEvent(self.model, self._streams[stream])

    def follow(self, stream: int, event: StreamEvent) -> None:
        super().follow(stream, event)
        if stream == CALLER:
            self._run_caller()

    def use_memory(self, stream: int, what: str, reads: list[Any], writes: list[Any]) -> None:
        located = [[self.array(x, stream) if isinstance(x, torch.Tensor) else x for x in xs] for xs in (reads, writes)]
        with self._collecting():
            super().use_memory(stream, what, *located)

    def connect(self, comm: MPI.Comm) -> "MpiNccl":
        """Create NCCL's communicator for the ranks of an MPI communicator (a collective call)."""
        self.communicators.append(MpiNccl(comm, self))
        return self.communicators[-1]

    def compute(self, name: str, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        """Check the accesses of a PyTorch operation, which runs immediately."""
        merge(self.caller.clock, self.model.host)
        self.caller.clock[self.caller.name] += 1
        self.caller.done += 1
        count, place = self.caller.clock[self.caller.name], find_place(name)
        for tensors, write in ((reads, False), (writes, True)):
            for x in tensors:
                if x.numel():
                    reach = sum((n - 1) * step for n, step in zip(x.size(), x.stride(), strict=True))
                    low = x.data_ptr()
                    use = Use(self.caller.name, count, low, low + (reach + 1) * x.element_size(), write, place)
                    with self._collecting():
                        self._uses.add(use, self.caller.clock)

    def end(self) -> None:
        """Run all work, and check that all ranks have started the same operations (a collective call)."""
        self.model.run_until(lambda: not self.model.pending)
        for communicator in self.communicators:
            self.errors += communicator.list_differences()
        everyone = MPI.COMM_WORLD.allgather(self.launches)
        for rank, others in enumerate(everyone):
            if rank != self.rank and _shared(self.launches, rank) != _shared(others, self.rank):
                self.errors.append(f"ranks {self.rank} and {rank} launched operations in another order")

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        try:
            yield
        except StreamError as error:
            self.errors.append(str(error))

    def _run_caller(self) -> None:
        self.model.run_until(lambda: not self.caller.todo)


def _shared(launches: list[Launch], rank: int) -> list[str]:
    """Return the communicators of the launches in which another rank takes part."""
    return [communicator for communicator, ranks in launches if rank in ranks]


class MpiNccl(StrictCommunicator):
    """NCCL communicator that is modeled with MPI requests. Sums are computed by the MPI library."""

    def __init__(self, comm: MPI.Comm, accelerator: TrainingDevice) -> None:
        super().__init__(World(comm.size), comm.rank, accelerator)
        self._comm = comm.Dup()
        self._library = Library(self._comm)
        self._ranks = tuple(comm.allgather(MPI.COMM_WORLD.rank))
        self._peers: set[int] = set()
        self._name = f"{self._ranks} {sum(other._ranks == self._ranks for other in accelerator.communicators)}"
        self._device = accelerator
        self.operations: list[tuple[Any, ...]] = []
        """Kinds of all collectives, which must be the same on all ranks."""

    def end(self) -> None:
        """End the group, and record its launch."""
        if self._open:
            self._device.launches.append((self._name, frozenset(self._peers)))
        self._peers.clear()
        super().end()

    def list_differences(self) -> list[str]:
        """List the ranks that have started different collectives (a collective call)."""
        everyone = enumerate(self._comm.allgather(self.operations))
        return [f"rank {rank} made other collectives" for rank, others in everyone if others != self.operations]

    def _message(self, source: int, target: int, side: int, array: DeviceArray, stream: int) -> None:
        self._peers.add(self._ranks[source if side else target])

        def begin() -> Slice:
            memory = [seen(array), MPI.BYTE]
            yield [self._comm.Irecv(memory, source) if side else self._comm.Isend(memory, target)]

        empty = array[:0]
        place = find_place(f"{'receive' if side else 'send'} of rank {self.rank}")
        part = Part((array.nbytes,), empty if side else array, array if side else empty, place)
        self._add(part, _runner(begin), stream)

    def _collective(self, kind: tuple[Any, ...], src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        library, name = self._library, kind[0]
        self._peers.update(self._ranks)
        self.operations.append((name, kind[1], str(kind[2]), *kind[3:]))

        def begin() -> Slice:
            if name == "all-reduce":
                yield from library.all_reduce(seen(dst), next(op for op, _ in OPERATIONS if op.handle == kind[3]))
            elif name == "reduce-scatter":
                yield from library.reduce_scatter(seen(src), seen(dst))
            elif name == "all-gather":
                yield from library.all_gather(seen(src), seen(dst))
            elif name == "broadcast":
                yield from library.broadcast(seen(dst), kind[3])
            else:
                yield from library.reduce(seen(src), seen(dst), kind[3])

        self._add(Part(kind, src, dst, find_place(f"{name} of rank {self.rank}")), _runner(begin), stream)


def _runner(begin: Callable[[], Slice]) -> Callable[[], bool]:
    """Return a function that starts an operation, and returns whether the operation has ended."""
    steps: list[Any] = []

    def moved() -> bool:
        if not steps:
            moves = begin()
            steps.extend((moves, next(moves, None)))
        while steps[1] is not None:
            awaited = steps[1]
            if not (MPI.Request.Testall(awaited) if isinstance(awaited, list) else awaited.done()):
                return False
            steps[1] = next(steps[0], None)
        return True

    return moved


class Watch(TorchDispatchMode):
    """Dispatch mode that reports the memory accesses of every PyTorch operation to the device."""

    def __init__(self, device: TrainingDevice) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, schema = kwargs or {}, func._schema
        reads: list[torch.Tensor] = []
        writes: list[torch.Tensor] = []
        aliases = [value.alias_info for value in schema.returns]
        is_view = aliases and all(alias is not None and not alias.is_write for alias in aliases)
        for k, argument in enumerate(schema.arguments):
            value = args[k] if k < len(args) else kwargs.get(argument.name)
            tensors = [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]
            changes = argument.alias_info is not None and argument.alias_info.is_write
            (writes if changes else reads).extend(tensors)
        out = func(*args, **kwargs)
        if not is_view:
            if not writes:
                writes = [leaf for leaf in tree_flatten(out)[0] if isinstance(leaf, torch.Tensor)]
            self._device.compute(schema.name, reads, writes)
        return out


@contextmanager
def on_strict_device(device: TrainingDevice) -> Iterator[None]:
    """Train on the device during the block, and complete all its work at the end (a collective call)."""
    adamw, squares = flat.adamw, flat.squares

    def update(how: Any, master: torch.Tensor, gradient: torch.Tensor | None, *moments: torch.Tensor) -> None:
        device.compute("adamw", [] if gradient is None else [gradient], [master, *moments])
        adamw(how, master, gradient, *moments)

    def square(x: torch.Tensor) -> float:
        device.compute("squares", [x], [])
        return squares(x)

    with (
        patch.object(buffers, "on_device", lambda x: True),
        patch.object(flat, "adamw", update),
        patch.object(flat, "squares", square),
        with_strict_codecs(),
        Watch(device),
    ):
        yield
    device.end()
