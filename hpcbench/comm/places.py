"""The memory that an operation's arrays lie in: the host's or a GPU's."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm.accelerator import Accelerator, DeviceArray, StreamEvent, accelerator_of
from hpcbench.comm.arrays import Array
from hpcbench.comm.clock import Clock, DeviceClock, HostClock
from hpcbench.comm.gpu_memory import DeviceMemory
from hpcbench.comm.gpu_pools import Pools
from hpcbench.comm.memory import HostMemory, Memory, Slice, Tally
from hpcbench.comm.nccl import Connect
from hpcbench.comm.rounding import narrow, widen
from hpcbench.comm.scratch import Scratch


class Place(Protocol):
    """The memory that the arrays of one operation lie in."""

    on_device: bool
    clock: Clock
    """The clock that measures the caller's computation."""
    called: Any
    """The clock's mark when the operation was called; None if that is the mark of its beginning."""

    def memory(self, codec: Codec, dtype: np.dtype[Any], tally: Tally, *, sealed: bool) -> Memory:
        """Make the memory for one slice."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy values after the work that the caller has launched so far."""

    def snapshot(self, values: Any) -> Any:
        """Copy values as they are now. The caller may change them after `settle`."""

    def sample(self, values: Any) -> Array:
        """Copy values to the host at once."""

    def by_library(
        self, call: Callable[[Any, Any], Slice], source: Any, target: Any, dtype: np.dtype[Any], *, on_host: bool
    ) -> Slice:
        """Let a collective of the MPI library read `source` and write `target`.

        Parameters
        ----------
        dtype
            Type in which values are sent. The call is given arrays of this type.
        on_host
            Whether the call needs arrays in host memory.
        """

    def settle(self) -> None:
        """Let the caller change values that have been encoded so far."""

    def took(self, seconds: float) -> float:
        """Return the duration of a finished operation in seconds. `seconds` is its duration on the host's clock."""


class HostPlace:
    """The place of NumPy arrays.

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
        """Make the memory for one slice."""
        return HostMemory(codec, dtype, self._scratch, tally, sealed=sealed)

    def copy(self, target: Array, source: Array) -> None:
        """Copy values at once."""
        target[...] = source

    def snapshot(self, values: Array) -> Array:
        """Copy the values."""
        return np.array(values)

    def sample(self, values: Array) -> Array:
        """Return the values themselves."""
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
        """Call the MPI library with the arrays, or with rounded copies of them."""
        if dtype == source.dtype:
            return call(source, target)
        arrays = (source,) if target is source else (source, target)
        lent = [self._scratch.take(x.size * dtype.itemsize) for x in arrays]
        here, there = (lent[k][: x.size * dtype.itemsize].view(dtype) for k, x in ((0, source), (-1, target)))
        narrow(source.reshape(-1), here)
        return self._back(call(here, there), there, target, lent)

    def settle(self) -> None:
        """Do nothing: encoded values are never read again."""

    def took(self, seconds: float) -> float:
        """Return the seconds by the host's clock."""
        return seconds

    def _back(self, call: Slice, result: Array, target: Array, lent: list[Array]) -> Slice:
        yield from call
        widen(result, target.reshape(-1))
        for buffer in lent:
            self._scratch.give_back(buffer)


class DevicePlace:
    """One operation's arrays on a device, from the moment when it is called.

    Parameters
    ----------
    pools
        Pools of the device.
    caller
        Stream on which the caller makes the arrays.
    current
        Function that returns the stream that is the caller's now; by default it stays the same.
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
        """Make the memory for one slice."""
        return DeviceMemory(codec, dtype, self.pools, self._stream, tally, self._ends.append, sealed=sealed)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Start a copy on the caller's stream."""
        self._accelerator.copy(target, source, self._caller)
        self._follow()

    def snapshot(self, values: DeviceArray) -> DeviceArray:
        """Copy values on the device. Return the values themselves if they are copied to the host anyway."""
        if not self.pools.aware:
            return values
        taken = self._accelerator.memory(values.nbytes).view(values.dtype)
        self._accelerator.copy(taken, values, self._stream)
        return taken

    def sample(self, values: DeviceArray) -> Array:
        """Copy the values to the host at once."""
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
        """Let a collective of the MPI library read `source` and write `target`, or copies of them.

        Parameters
        ----------
        call
            Function that is called with arrays of `dtype`: NumPy arrays, or arrays of the device if the library takes
            device pointers. If source and target are the same array, it gets the same array twice.
        source, target
            Values.
        dtype
            Type that values are rounded to; None keeps their type.
        on_host
            Whether MPI calls back a loop on the processor. Then the arrays are NumPy arrays in any case.
        """
        # MPI requires the same order of collectives on all ranks, so this thread waits for the values at once
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
        """Let the caller's stream wait for the operation's stream."""
        self._accelerator.follow(self._caller, self._accelerator.mark(self._stream))

    def lead(self, streams: Sequence[int]) -> None:
        """Let streams wait for the work that the caller, and this operation, have launched so far."""
        for event in (self._accelerator.mark(self._caller), self._accelerator.mark(self._stream)):
            for stream in streams:
                self._accelerator.follow(stream, event)

    def follow(self, events: Sequence[StreamEvent]) -> None:
        """Let the caller's streams, that of the call and the current one, wait for events."""
        for stream in {self._caller, self._current()}:
            for event in events:
                self._accelerator.follow(stream, event)

    def took(self, seconds: float) -> float:
        """Return the seconds by the device's events, or those of the host's clock without an event."""
        return max((end.since(self._begin) for end in self._ends), default=seconds)

    def _room(
        self, pool: Scratch, source: Any, target: Any, dtype: np.dtype[Any], lent: list[tuple[Scratch, Any]]
    ) -> tuple[Any, Any]:
        """Borrow arrays of a dtype for the values of source and target; the same array twice if these are one."""
        rooms = []
        for values in (source,) if target is source else (source, target):
            nbytes = values.size * dtype.itemsize
            lent.append((pool, pool.take(nbytes)))
            rooms.append(lent[-1][1][:nbytes].view(dtype))
        return rooms[0], rooms[-1]

    def _back(self, call: Slice, ways: list[tuple[DeviceArray, Any]], lent: list[tuple[Scratch, Any]]) -> Slice:
        """Make the call, then copy its result from the second array of each pair to the first."""
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
    """The memories of a process, shared by all its groups.

    Parameters
    ----------
    aware
        Whether the MPI library takes device pointers, on all ranks: see `gpu_aware`.
    device_of
        Function that finds the device of an array that is not a NumPy array.
    nccl
        Function that makes NCCL's communicators, if NCCL carries the arrays of GPUs; None if MPI does.
    """

    def __init__(
        self,
        *,
        aware: bool = False,
        device_of: Callable[[Any], Accelerator] = accelerator_of,
        nccl: Connect | None = None,
    ) -> None:
        self.nccl = nccl
        self._aware, self._device_of = aware, device_of
        self._host = HostPlace(Scratch())
        self._pools: dict[int, Pools] = {}

    def of(self, *arrays: Any) -> tuple[Place, tuple[Any, ...]]:
        """Return the place of arrays, and the arrays in the form that its memory accepts.

        Raises
        ------
        TypeError
            The memory of an array is unknown, or the arrays are in different memories.
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
        """Return the clock of the process for the memory that an array lies in."""
        place, _ = self.of(array)
        return place.clock

    @property
    def device_bytes(self) -> int:
        """Bytes of the buffers that operations share on the devices. They are kept, so this is the peak."""
        return sum(pools.device_bytes for pools in self._pools.values())
