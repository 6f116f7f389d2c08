"""A lazy GPU for tests of collectives, emulated in host memory. No work runs before a wait.

A stream is a list of operations. An event reports incomplete on its first query, and runs all preceding operations on
the second. A result that is read too early contains poison values. If nothing waits for an operation, the operation
never runs.
"""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
from emulated_device import POISON, EmulatedCallMemory, EmulatedDevice

from hpcbench.codecs.device import Build, CallMemory, View, view_of
from hpcbench.comm.accelerator import Accelerator, DeviceArray, StreamEvent

CALLER = 0
"""Handle of the caller's stream."""


class Streams:
    """Pending work, keyed by stream."""

    def __init__(self) -> None:
        self._todo: dict[int, list[Callable[[], object]]] = {CALLER: []}
        self._done: dict[int, int] = {CALLER: 0}

    def new(self) -> int:
        handle = len(self._todo)
        self._todo[handle], self._done[handle] = [], 0
        return handle

    def put(self, stream: int, work: Callable[[], object]) -> None:
        self._todo[stream].append(work)

    def end(self, stream: int) -> int:
        return len(self._todo[stream])

    def drain(self, stream: int, end: int) -> None:
        while self._done[stream] < end:
            place = self._done[stream]
            self._done[stream] += 1
            self._todo[stream][place]()


class LazyEvent(StreamEvent):
    def __init__(self, streams: Streams, stream: int) -> None:
        self._streams, self._stream, self._end = streams, stream, streams.end(stream)
        self._asked = False

    def done(self) -> bool:
        if self._asked:
            self.wait()
        self._asked = True
        return self._streams._done[self._stream] >= self._end

    def wait(self) -> None:
        self._streams.drain(self._stream, self._end)

    def since(self, earlier: StreamEvent) -> float:
        assert isinstance(earlier, LazyEvent) and earlier._stream == self._stream and earlier._end <= self._end
        assert self._streams._done[self._stream] >= self._end, "times of events that have not been recorded"
        return 1e-9 * (self._end - earlier._end)


class LazyCallMemory(CallMemory):
    def __init__(self, streams: Streams, word_count: int) -> None:
        self._streams, self._inner = streams, EmulatedCallMemory(word_count)
        self.word_count, self.pointer = word_count, self._inner.pointer
        self._last: LazyEvent | None = None

    def begin(self, stream: int, zeros: int) -> None:
        before = self._last
        if before is not None:
            self._streams.put(stream, before.wait)
        self._streams.put(stream, lambda: self._inner.begin(stream, zeros))

    def end(self, stream: int) -> None:
        self._streams.put(stream, lambda: self._inner.end(stream))
        self._last = LazyEvent(self._streams, stream)

    def wait(self) -> tuple[int, int]:
        assert self._last is not None
        self._last.wait()
        return self._inner.wait()


class LazyDevice(EmulatedDevice):
    def __init__(self, streams: Streams) -> None:
        super().__init__()
        self._streams = streams

    def stream(self, stream: Any, array: Any) -> int:
        return CALLER if stream is None else int(stream)

    def view(self, name: str, array: Any, stream: int) -> View:
        return view_of(name, array.__cuda_array_interface__)

    def launch(self, build: Build, kernel: str, blocks: int, arguments: tuple[int, ...], stream: int) -> None:
        run = super().launch
        self._streams.put(stream, lambda: run(build, kernel, blocks, arguments, stream))

    def memory(self, word_count: int) -> CallMemory:
        self.memories += 1
        return LazyCallMemory(self._streams, word_count)


class OnDevice:
    """A caller's array on the device. The array is not a NumPy array, but NumPy can view its contents."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.shape, self.size, self.dtype = values.shape, values.size, values.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.values.__array_interface__, "strides": None}

    def __getitem__(self, part: slice) -> "OnDevice":
        return OnDevice(self.values[part])

    def reshape(self, n: int) -> "OnDevice":
        return OnDevice(self.values.reshape(n))


class LazyAccelerator(Accelerator):
    """An accelerator that counts allocated buffers and copied bytes."""

    def __init__(self) -> None:
        self.streams = Streams()
        self.codecs = LazyDevice(self.streams)
        self.allocated = 0
        self._pinned: list[np.ndarray] = []
        self.to_host = self.to_device = 0
        """Bytes copied to and from pinned memory."""
        self.elsewhere = 0
        """Bytes copied to and from pageable host memory."""

    def use(self) -> None:
        pass

    def new_stream(self) -> int:
        return self.streams.new()

    def memory(self, nbytes: int) -> DeviceArray:
        self.allocated += 1
        memory = np.full(nbytes, POISON, np.uint8)
        return DeviceArray(memory, memory.ctypes.data, nbytes, memory.dtype)

    def pinned(self, nbytes: int) -> np.ndarray:
        self._pinned.append(np.full(nbytes, POISON, np.uint8))
        return self._pinned[-1]

    @property
    def buffers(self) -> tuple[int, int]:
        """Return the number of allocated device buffers and pinned buffers."""
        return self.allocated, len(self._pinned)

    def copy(self, target: Any, source: Any, stream: int) -> None:
        assert target.nbytes == source.nbytes
        for host, pinned in ((target, "to_host"), (source, "to_device")):
            if isinstance(host, np.ndarray):
                owned = any(
                    memory.ctypes.data <= host.ctypes.data < memory.ctypes.data + memory.size for memory in self._pinned
                )
                name = pinned if owned else "elsewhere"
                setattr(self, name, getattr(self, name) + host.nbytes)
        to, of, nbytes = address(target), address(source), source.nbytes
        self.streams.put(stream, lambda: ctypes.memmove(to, of, nbytes))

    def mark(self, stream: int) -> LazyEvent:
        return LazyEvent(self.streams, stream)

    def follow(self, stream: int, event: StreamEvent) -> None:
        self.streams.put(stream, event.wait)

    def fill(self, x: OnDevice, values: np.ndarray) -> None:
        """Fill an array as a kernel of the caller would: later, in the order of the caller's stream."""
        self.streams.put(CALLER, lambda: np.copyto(x.values, values))


class Impatient(LazyAccelerator):
    """A faulty accelerator whose copies to the host appear to complete immediately."""

    class EarlyEvent(LazyEvent):
        at_once = False

        def done(self) -> bool:
            return self.at_once or super().done()

        def since(self, earlier: StreamEvent) -> float:
            return 0.0

    _to_host = False

    def copy(self, target: Any, source: Any, stream: int) -> None:
        super().copy(target, source, stream)
        self._to_host = isinstance(target, np.ndarray)

    def mark(self, stream: int) -> LazyEvent:
        event = self.EarlyEvent(self.streams, stream)
        event.at_once, self._to_host = self._to_host, False
        return event


class Deaf(LazyAccelerator):
    """A faulty accelerator whose streams do not wait for each other."""

    def follow(self, stream: int, event: StreamEvent) -> None:
        pass


def address(x: Any) -> int:
    return x.pointer if isinstance(x, DeviceArray) else int(x.ctypes.data)


def seen(x: DeviceArray) -> np.ndarray:
    return np.frombuffer((ctypes.c_char * x.nbytes).from_address(x.pointer), x.dtype)
