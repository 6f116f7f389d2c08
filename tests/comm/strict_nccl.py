"""A strict model of NCCL and of CUDA streams for the engine's executor, with all ranks in one thread.

`streams` provides the streams, the events, and the checks of the order of accesses. `StreamError` names both
conflicting calls if

- two streams access the same memory, one of them writes, and no event orders the accesses;
- two operations of a communicator are enqueued on streams that no event orders;
- the collectives of two ranks differ, a message has no receive, or the sizes of send and receive differ;
- the NCCL groups of several ranks deadlock: a group runs only after its peers' groups have been reached;
- the host waits for the device.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from emulated_accelerator import POISON, EmulatedCallMemory, EmulatedDevice, address, seen
from streams import Collectives, Event, Stream, StreamError, Streams, Use, Uses, find_place

from hpcbench.codecs.cuda import CudaCodec
from hpcbench.codecs.device import Build, CallMemory, View, view_of
from hpcbench.comm import gpu_pools
from hpcbench.comm.accelerator import Accelerator, DeviceArray, StreamEvent
from hpcbench.comm.nccl import Communicator
from hpcbench.comm.rounding import is_half, narrow, widen

CALLER = 0


class Model(Streams):
    """The streams of all ranks."""

    ran = False

    def run(self, seed: int) -> None:
        """Run all queued work, after which the host may wait for the device."""
        super().run(seed)
        self.ran = True


class StrictEvent(StreamEvent):
    def __init__(self, model: Model, stream: Stream) -> None:
        self.model, self.event = model, Event(model, stream)

    def done(self) -> bool:
        return bool(self.event.query())

    def wait(self) -> None:
        if not self.model.ran:
            raise StreamError(f"the host waits for the device: {find_place('wait')}")

    def since(self, earlier: StreamEvent) -> float:
        return 1e-9


class StrictDevice(EmulatedDevice):
    def __init__(self, owner: "StrictAccelerator") -> None:
        super().__init__()
        self._owner = owner

    def stream(self, stream: Any, array: Any) -> int:
        return CALLER if stream is None else int(stream)

    def view(self, name: str, array: Any, stream: int) -> View:
        return view_of(name, array.__cuda_array_interface__)

    def launch(self, build: Build, kernel: str, blocks: int, arguments: tuple[int, ...], stream: int) -> None:
        run = super().launch
        self._owner.put(stream, kernel, lambda: run(build, kernel, blocks, arguments, stream))

    def memory(self, word_count: int) -> CallMemory:
        return StrictCallMemory(self._owner, word_count)


class StrictCallMemory(CallMemory):
    def __init__(self, owner: "StrictAccelerator", word_count: int) -> None:
        self._owner, self._inner = owner, EmulatedCallMemory(word_count)
        self.word_count, self.pointer = word_count, self._inner.pointer
        self._last: StreamEvent | None = None

    def begin(self, stream: int, zeros: int) -> None:
        if self._last is not None:
            self._owner.follow(stream, self._last)
        self._owner.put(stream, "begin", lambda: self._inner.begin(stream, zeros))

    def end(self, stream: int) -> None:
        self._owner.put(stream, "end", lambda: self._inner.end(stream))
        self._last = self._owner.mark(stream)

    def wait(self) -> tuple[int, int]:
        assert self._last is not None
        self._last.wait()
        return self._inner.wait()


class StrictAccelerator(Accelerator):
    """The device of one rank."""

    def __init__(self, model: Model, rank: int) -> None:
        self.model, self.rank = model, rank
        self._streams: list[Stream] = []
        self._uses = Uses()
        self._orders = 0
        self._memory: list[np.ndarray] = []  # keeps addresses unique
        self.codecs = StrictDevice(self)
        assert self.new_stream() == CALLER

    def put(self, stream: int, what: str, work: Callable[[], object]) -> int:
        queue = self._streams[stream]
        return queue.put(find_place(f"{what} on {queue.name}"), lambda: (work(), True)[1])

    def use_memory(self, stream: int, what: str, reads: list[Any], writes: list[Any]) -> None:
        """Record memory accesses of a stream's last operation.

        Raise an error if these accesses are not ordered after earlier accesses.
        """
        queue = self._streams[stream]
        for arrays, write in ((reads, False), (writes, True)):
            for x in arrays:
                low = address(x) if not isinstance(x, int) else x
                high = low + (x.nbytes if not isinstance(x, int) else 1)
                place = find_place(f"{what} on {queue.name}")
                self._uses.add(Use(queue.name, queue.clock[queue.name], low, high, write, place), queue.clock)

    def use(self) -> None:
        pass

    def new_order(self) -> int:
        """Return an address that represents the order of a communicator's operations."""
        self._orders += 1
        return -self._orders

    def new_stream(self) -> int:
        self._streams.append(Stream(self.model, f"stream {len(self._streams)} of rank {self.rank}"))
        return len(self._streams) - 1

    def memory(self, nbytes: int) -> DeviceArray:
        self._memory.append(np.full(nbytes, POISON, np.uint8))
        return DeviceArray(self._memory[-1], self._memory[-1].ctypes.data, nbytes, np.dtype(np.uint8))

    def pinned(self, nbytes: int) -> np.ndarray:
        raise AssertionError("nothing passes through the host")

    def copy(self, target: Any, source: Any, stream: int) -> None:
        assert target.nbytes == source.nbytes
        self.put(stream, "copy", lambda: np.copyto(content(target), content(source)))
        self.use_memory(stream, "copy", [source], [target])

    def mark(self, stream: int) -> StrictEvent:
        return StrictEvent(self.model, self._streams[stream])

    def follow(self, stream: int, event: StreamEvent) -> None:
        assert isinstance(event, StrictEvent)
        self._streams[stream].wait_event(event.event)

    def convert(self, target: Any, source: Any, stream: int, *, accumulate: bool = False, residual: Any = None) -> None:
        super().convert(target, source, stream, accumulate=accumulate, residual=residual)
        written = [target] if residual is None else [target, residual]
        self.use_memory(stream, "convert", [source], written)

    def add(self, total: Any, values: Any, stream: int) -> None:
        super().add(total, values, stream)
        self.use_memory(stream, "add", [values], [total])

    def add_residual(self, target: Any, source: Any, residual: Any, stream: int) -> None:
        super().add_residual(target, source, residual, stream)
        self.use_memory(stream, "add residual", [source], [target, residual])

    def array(self, x: Any, stream: int) -> DeviceArray:
        assert isinstance(x, DeviceArray)
        return x

    def fill(self, values: np.ndarray) -> DeviceArray:
        """Return an array that the caller's stream fills later."""
        x = self.memory(max(1, values.nbytes))[: values.nbytes].view(values.dtype)
        taken = values.copy()
        self.put(CALLER, "fill", lambda: np.copyto(seen(x), taken))
        self.use_memory(CALLER, "fill", [], [x])
        return x

    def read(self, x: DeviceArray) -> list[np.ndarray]:
        """Read an array on the caller's stream. The list is filled when all work has run."""
        values: list[np.ndarray] = []
        self.put(CALLER, "read", lambda: values.append(seen(x).copy()))
        self.use_memory(CALLER, "read", [x], [])
        return values


class StrictCodec(CudaCodec):
    """A codec whose memory accesses are recorded."""

    def encode(self, x: Any, out: Any, *, residual: Any = None, seed: int = 0, stream: Any = None) -> Any:
        used = super().encode(x, out, residual=residual, seed=seed, stream=stream)
        device = self._device
        assert isinstance(device, StrictDevice)
        room = out[: self.wire_bytes(x.size, x.dtype)]
        device._owner.use_memory(stream, "encode", [x], [room] if residual is None else [room, residual])
        return used

    def decode(self, wire: Any, out: Any, *, dtype: Any = None, accumulate: bool = False, stream: Any = None) -> Any:
        used = super().decode(wire, out, dtype=dtype, accumulate=accumulate, stream=stream)
        device = self._device
        assert isinstance(device, StrictDevice)
        device._owner.use_memory(stream, "decode", [wire], [out])
        return used


def with_strict_codecs() -> Any:
    return patch.object(gpu_pools, "CudaCodec", StrictCodec)


def content(x: Any) -> np.ndarray:
    return (x if isinstance(x, np.ndarray) else seen(x)).view(np.uint8)


@dataclass
class Part:
    """A message or collective that one rank performs as part of an operation."""

    kind: tuple[Any, ...]
    """Properties that must be equal on all participating ranks."""
    src: DeviceArray
    dst: DeviceArray
    place: str
    reached: bool = False


class World(Collectives[Part]):
    """The operations of all ranks of a communicator."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        self.messages: dict[tuple[int, int], list[list[Part | None]]] = defaultdict(list)
        """Send and receive of each message, by source and target rank, in call order."""
        self.moved: set[int] = set()

    def check(self) -> None:
        """Raise an error if a collective lacks a rank, or a message lacks its send or receive."""
        super().check()
        for (source, target), pairs in self.messages.items():
            for send, receive in pairs:
                if receive is None and send is not None:
                    raise StreamError(f"rank {target} never receives what rank {source} sends by {send.place}")
                if send is None and receive is not None:
                    raise StreamError(f"rank {source} never sends what rank {target} receives by {receive.place}")


class StrictCommunicator(Communicator):
    """One rank's communicator."""

    def __init__(self, world: World, rank: int, accelerator: StrictAccelerator) -> None:
        self.rank, self.size = rank, world.ranks
        self._world, self._accelerator = world, accelerator
        self._order = accelerator.new_order()
        self._open: list[tuple[Part, Callable[[], bool]]] | None = None
        self._stream = CALLER
        self._counts: dict[tuple[int, int, int], int] = defaultdict(int)

    def start(self) -> None:
        assert self._open is None
        self._open = []

    def end(self) -> None:
        parts, self._open = self._open or [], None
        if not parts:
            return
        place = find_place(f"NCCL operation of rank {self.rank}")

        def run() -> bool:
            for part, _ in parts:
                part.reached = True
            ended = [moved() for _, moved in parts]  # try all of them
            return all(ended)

        stream = self._accelerator._streams[self._stream]
        stream.put(place, run)
        reads = [part.src for part, _ in parts if part.src.size]
        writes = [part.dst for part, _ in parts if part.dst.size]
        self._accelerator.use_memory(self._stream, "NCCL", reads, [*writes, self._order])

    def send(self, content: DeviceArray, peer: int, stream: int) -> None:
        self._message(self.rank, peer, 0, content, stream)

    def receive(self, inbox: DeviceArray, peer: int, stream: int) -> None:
        self._message(peer, self.rank, 1, inbox, stream)

    def all_reduce(self, buf: DeviceArray, op: Any, stream: int) -> None:
        self._collective(("all-reduce", buf.size, buf.dtype, op.handle), buf, buf, stream)

    def reduce_scatter(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        self._collective(("reduce-scatter", src.size, src.dtype, dst.size), src, dst, stream)

    def all_gather(self, src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        self._collective(("all-gather", src.size, src.dtype, dst.size), src, dst, stream)

    def broadcast(self, buf: DeviceArray, root: int, stream: int) -> None:
        self._collective(("broadcast", buf.size, buf.dtype, root), buf, buf, stream)

    def reduce(self, src: DeviceArray, dst: DeviceArray, root: int, stream: int) -> None:
        into = dst if self.rank == root else dst[:0]
        self._collective(("reduce", src.size, src.dtype, root), src, into, stream)

    def free(self) -> None:
        pass

    def _message(self, source: int, target: int, side: int, array: DeviceArray, stream: int) -> None:
        pairs = self._world.messages[source, target]
        number = self._counts[source, target, side]
        self._counts[source, target, side] += 1
        if number == len(pairs):
            pairs.append([None, None])
        empty = array[:0]
        place = find_place(f"{'receive' if side else 'send'} of rank {self.rank}")
        part = Part((array.nbytes,), empty if side else array, array if side else empty, place)
        pair = pairs[number]
        pair[side] = part
        other = pair[1 - side]
        if other is not None and other.kind != part.kind:
            raise StreamError(f"sizes differ: {part.place} has {part.kind[0]} bytes, {other.place} {other.kind[0]}")

        def moved() -> bool:
            send, receive = pair
            if send is None or receive is None or not (send.reached and receive.reached):
                return False
            if id(pair) not in self._world.moved:
                self._world.moved.add(id(pair))
                np.copyto(seen(receive.dst), seen(send.src))
            return True

        self._add(part, moved, stream)

    def _collective(self, kind: tuple[Any, ...], src: DeviceArray, dst: DeviceArray, stream: int) -> None:
        world = self._world
        part = Part(kind, src, dst, find_place(f"{kind[0]} of rank {self.rank}"))
        everyone = world.join(self.rank, part, lambda other, peer: other.kind == kind)

        def moved() -> bool:
            if not world.can_run(everyone):
                return False
            if id(everyone) not in world.moved:
                world.moved.add(id(everyone))
                carry_out(kind, [everyone[rank] for rank in range(world.ranks)])
            return True

        self._add(part, moved, stream)

    def _add(self, part: Part, moved: Callable[[], bool], stream: int) -> None:
        alone = self._open is None
        if alone:
            self.start()
        assert self._open is not None
        self._stream = stream
        self._open.append((part, moved))
        if alone:
            self.end()


def carry_out(kind: tuple[Any, ...], parts: list[Part]) -> None:
    """Perform a collective for all ranks at once."""
    name, sources = kind[0], [seen(part.src).copy() for part in parts]
    if name == "all-gather":
        joined = np.concatenate(sources)
        for part in parts:
            np.copyto(seen(part.dst), joined)
    elif name == "broadcast":
        for part in parts:
            np.copyto(seen(part.dst), sources[kind[3]])
    else:
        total = sum_of(sources)
        for rank, part in enumerate(parts):
            n = part.dst.size
            np.copyto(seen(part.dst), total[rank * n : (rank + 1) * n] if name == "reduce-scatter" else total[:n])


def sum_of(sources: list[np.ndarray]) -> np.ndarray:
    if not is_half(sources[0].dtype):
        return np.sum(sources, axis=0, dtype=sources[0].dtype)
    wide = np.zeros((len(sources), sources[0].size), np.float32)
    for values, row in zip(sources, wide, strict=True):
        widen(values, row)
    total = np.empty(sources[0].size, sources[0].dtype)
    narrow(wide.sum(axis=0, dtype=np.float32), total)
    return total
