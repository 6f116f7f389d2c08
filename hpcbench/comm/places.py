"""Memory that contains an operation's arrays: host memory or GPU memory."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm.accelerator import Accelerator, DeviceArray, StreamEvent, accelerator_of
from hpcbench.comm.arrays import Array
from hpcbench.comm.clock import Clock, DeviceClock, HostClock
from hpcbench.comm.gpu_memory import DeviceMemory
from hpcbench.comm.gpu_pools import Pools
from hpcbench.comm.memory import HostMemory, Memory, Slice, Tally
from hpcbench.comm.rounding import narrow, widen
from hpcbench.comm.scratch import Scratch

if TYPE_CHECKING:  # programs of others have no mpi4py
    from hpcbench.comm.nccl import Connect


class Place(Protocol):
    """The memory that contains the arrays of one operation."""

    on_device: bool
    clock: Clock
    """The clock that measures the caller's computation."""
    called: Any
    """Mark that the clock returned when the operation was called. None stands for the mark at the operation's start."""

    def memory(self, codec: Codec, dtype: np.dtype[Any], tally: Tally, *, sealed: bool) -> Memory:
        """Create the memory of one slice."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy values when all work that the caller has launched so far is complete."""

    def snapshot(self, values: Any) -> Any:
        """Copy the current values. The caller may change the values after `settle`."""

    def sample(self, values: Any) -> Array:
        """Copy values to the host immediately."""

    def by_library(
        self, call: Callable[[Any, Any], Slice], source: Any, target: Any, dtype: np.dtype[Any], *, on_host: bool
    ) -> Slice:
        """Run a collective of the MPI library that reads `source` and writes `target`.

        Parameters
        ----------
        dtype
            Dtype in which values are sent. The call receives arrays of this dtype.
        on_host
            Whether the call requires arrays in host memory.
        """

    def settle(self) -> None:
        """Allow the caller to change the values that have been encoded so far."""

    def took(self, seconds: float) -> float:
        """Return the duration of a finished operation in seconds. `seconds` is the duration on the host's clock."""


class HostPlace:
    """Memory of NumPy arrays.

    Parameters
    ----------
    scratch
        Pool of message buffers.
    """

    on_device = False
    called: Any = None

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self.clock: Clock = HostClock()

    def memory(self, codec: Codec, dtype: np.dtype[Any], tally: Tally, *, sealed: bool) -> HostMemory:
        """Create the memory of one slice."""
        return HostMemory(codec, dtype, self._scratch, tally, sealed=sealed)

    def copy(self, target: Array, source: Array) -> None:
        """Copy values immediately."""
        target[...] = source

    def snapshot(self, values: Array) -> Array:
        """Copy the values."""
        return np.array(values)

    def sample(self, values: Array) -> Array:
        """Return the values themselves without copying."""
        return values

    def by_library(
        self,
        call: Callable[[Array, Array], Slice],
        source: Array,
        target: Array,
        dtype: np.dtype[Any],
        *,
        on_host: bool,
    ) -> Slice:
        """Call the MPI library with the arrays, or with rounded copies."""
        if dtype == source.dtype:
            return call(source, target)
        arrays = (source,) if target is source else (source, target)
        lent = [self._scratch.take(x.size * dtype.itemsize) for x in arrays]
        here, there = (lent[k][: x.size * dtype.itemsize].view(dtype) for k, x in ((0, source), (-1, target)))
        narrow(source.reshape(-1), here)
        return self._back(call(here, there), there, target, lent)

    def settle(self) -> None:
        """Do nothing, because values are never read again after encoding."""

    def took(self, seconds: float) -> float:
        """Return the duration on the host's clock."""
        return seconds

    def _back(self, call: Slice, result: Array, target: Array, lent: list[Array]) -> Slice:
        yield from call
        widen(result, target.reshape(-1))
        for buffer in lent:
            self._scratch.give_back(buffer)


class DevicePlace:
    """Device memory of one operation's arrays, from the time of the call on.

    Parameters
    ----------
    pools
        The device's pools.
    caller
        Stream on which the caller writes the arrays.
    current
        Function that returns the caller's current stream. By default, the function always returns `caller`.
    """

    on_device = True

    def __init__(self, pools: Pools, caller: int, current: Callable[[], int] | None = None) -> None:
        self.pools, self._caller, self._stream = pools, caller, pools.stream()
        self._current = current or (lambda: caller)
        self._accelerator = pools.accelerator
        self.clock: Clock = DeviceClock(pools.accelerator, caller, pools.spans)
        self.called: Any = self.clock.mark()
        self._ends: list[StreamEvent] = []
        self._follow()

    def memory(self, codec: Codec, dtype: np.dtype[Any], tally: Tally, *, sealed: bool) -> DeviceMemory:
        """Create the memory of one slice."""
        return DeviceMemory(codec, dtype, self.pools, self._stream, tally, self._ends.append, sealed=sealed)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Start a copy on the caller's stream."""
        self._accelerator.copy(target, source, self._caller)
        self._follow()

    def snapshot(self, values: DeviceArray) -> DeviceArray:
        """Copy values on the device. Values that will be copied to the host anyway are returned without copying."""
        if not self.pools.aware:
            return values
        taken = self._accelerator.memory(values.nbytes).view(values.dtype)
        self._accelerator.copy(taken, values, self._stream)
        return taken

    def sample(self, values: DeviceArray) -> Array:
        """Copy values to the host immediately."""
        sample: Array = np.empty(values.size, values.dtype)
        self._accelerator.copy(sample, values, self._stream)
        self._accelerator.mark(self._stream).wait()
        return sample

    def by_library(
        self,
        call: Callable[[Any, Any], Slice],
        source: DeviceArray,
        target: DeviceArray,
        dtype: np.dtype[Any] | None = None,
        *,
        on_host: bool = False,
    ) -> Slice:
        """Run a collective of the MPI library on `source` and `target`, or on copies.

        Parameters
        ----------
        call
            Function that receives arrays of `dtype`. The arrays are device arrays if the library is GPU-aware, and
            NumPy arrays otherwise. If `source` and `target` are the same array, the function receives one array twice.
        source, target
            Values.
        dtype
            Dtype that values are rounded to. If None, the dtype is unchanged.
        on_host
            Whether MPI uses a user-defined operation that runs on the host. The arrays are then always NumPy arrays.
        """
        # MPI requires the same order of collectives on all ranks, so this thread waits for the values immediately
        staged = on_host or not self.pools.aware
        kind = dtype or source.dtype
        lent: list[tuple[Scratch, Any]] = []
        here, there = source, target
        if kind != source.dtype:
            here, there = self._room(self.pools.device, here, there, kind, lent)
            self._accelerator.convert(here, source, self._stream)
        sent, got = here, there
        if staged:
            here, there = self._room(self.pools.host, here, there, kind, lent)
            self._accelerator.copy(here, sent, self._stream)
        self._accelerator.mark(self._stream).wait()
        return self._back(call(here, there), [(got, there), (target, got)], lent) if lent else call(here, there)

    def settle(self) -> None:
        """Make the caller's stream wait for the operation's stream."""
        self._accelerator.follow(self._caller, self._accelerator.mark(self._stream))

    def lead(self, streams: Sequence[int]) -> None:
        """Make streams wait for the work that the caller and this operation have launched so far."""
        for event in (self._accelerator.mark(self._caller), self._accelerator.mark(self._stream)):
            for stream in streams:
                self._accelerator.follow(stream, event)

    def follow(self, events: Sequence[StreamEvent]) -> None:
        """Make the caller's current stream, and the caller's stream at the time of the call, wait for events."""
        for stream in {self._caller, self._current()}:
            for event in events:
                self._accelerator.follow(stream, event)

    def took(self, seconds: float) -> float:
        """Return the duration measured with device events, or with the host's clock if no events were recorded."""
        return max((end.since(self._begin) for end in self._ends), default=seconds)

    def _room(
        self, pool: Scratch, source: Any, target: Any, dtype: np.dtype[Any], lent: list[tuple[Scratch, Any]]
    ) -> tuple[Any, Any]:
        """Borrow arrays of a dtype for source and target. If both are the same array, return one array twice."""
        rooms = []
        for values in (source,) if target is source else (source, target):
            nbytes = values.size * dtype.itemsize
            lent.append((pool, pool.take(nbytes)))
            rooms.append(lent[-1][1][:nbytes].view(dtype))
        return rooms[0], rooms[-1]

    def _back(self, call: Slice, ways: list[tuple[DeviceArray, Any]], lent: list[tuple[Scratch, Any]]) -> Slice:
        """Make the call, and then copy the results from the second array of each pair to the first."""
        yield from call
        for to, of in ways:
            if to.dtype != of.dtype:
                self._accelerator.convert(to, of, self._stream)
            elif to is not of:
                self._accelerator.copy(to, of, self._stream)
        end = self._accelerator.mark(self._stream)
        self._ends.append(end)
        yield end
        for pool, buffer in lent:
            pool.give_back(buffer)

    def _follow(self) -> None:
        self._accelerator.follow(self._stream, self._accelerator.mark(self._caller))
        self._begin = self._accelerator.mark(self._stream)


class Places:
    """The memory spaces of a process, shared by all its groups.

    Parameters
    ----------
    aware
        Whether the MPI library accepts device pointers on all ranks. See `gpu_aware`.
    device_of
        Function that returns the device of a non-NumPy array.
    nccl
        Function that creates NCCL communicators. If None, MPI transports GPU arrays.
    """

    def __init__(
        self,
        *,
        aware: bool = False,
        device_of: Callable[[Any], Accelerator] = accelerator_of,
        nccl: "Connect | None" = None,
    ) -> None:
        self.nccl = nccl
        self._aware, self._device_of = aware, device_of
        self._host = HostPlace(Scratch())
        self._pools: dict[int, Pools] = {}

    def of(self, *arrays: Any) -> tuple[Place, tuple[Any, ...]]:
        """Return the memory of arrays, and the arrays wrapped for that memory.

        Raises
        ------
        TypeError
            An array's memory is unknown, or the arrays are in different memories.
        """
        if isinstance(arrays[0], np.ndarray):
            if len(arrays) > 1 and not all(isinstance(x, np.ndarray) for x in arrays):
                raise TypeError("all arrays of an operation must be in the same memory: copy one of them")
            return self._host, arrays
        accelerators = [self._device_of(x) for x in arrays]
        if len(set(map(id, accelerators))) > 1:
            raise TypeError("all arrays of an operation must be on the same device: copy one of them")
        device = accelerators[0]
        if id(device) not in self._pools:
            self._pools[id(device)] = Pools(device, self._aware or self.nccl is not None)
        caller = device.codecs.stream(None, arrays[0])
        place = DevicePlace(self._pools[id(device)], caller, lambda: device.codecs.stream(None, arrays[0]))
        return place, tuple(device.array(x, caller) for x in arrays)

    def clock(self, array: Any) -> Clock:
        """Return the clock for the memory that contains an array."""
        place, _ = self.of(array)
        return place.clock

    @property
    def device_bytes(self) -> int:
        """Bytes of all shared device buffers. Buffers are never freed, so the value is also the peak."""
        return sum(pools.device_bytes for pools in self._pools.values())
