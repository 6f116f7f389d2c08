"""Which memory the arrays of an operation lie in: the host's, or a GPU's."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm.accelerator import Accelerator, DeviceArray, Event, accelerator_of
from hpcbench.comm.arrays import Array
from hpcbench.comm.clock import Clock, DeviceClock, HostClock
from hpcbench.comm.gpu_memory import DeviceMemory
from hpcbench.comm.gpu_pools import Pools
from hpcbench.comm.memory import HostMemory, Memory, Slice, Tally
from hpcbench.comm.rounding import narrow, widen
from hpcbench.comm.scratch import Scratch


class Place(Protocol):
    """Where the arrays of one operation lie."""

    on_device: bool
    clock: Clock
    """Of what the caller computes."""
    called: Any
    """Mark of the clock at which the operation was called; None where it is that of its beginning."""

    def memory(self, codec: Codec, dtype: np.dtype[Any], tally: Tally, *, sealed: bool) -> Memory:
        """For a slice."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy values, after what the caller asked for before."""

    def snapshot(self, values: Any) -> Any:
        """Values to send as they are now, whatever the caller does with them after `settle`."""

    def sample(self, values: Any) -> Array:
        """A copy on the host, at once."""

    def by_library(
        self, call: Callable[[Any, Any], Slice], source: Any, target: Any, dtype: np.dtype[Any], *, on_host: bool
    ) -> Slice:
        """A collective of the MPI library, which reads `source` and writes `target`.

        Parameters
        ----------
        dtype
            Type in which values travel: the call is given such arrays.
        on_host
            It has to be given arrays of the host's memory.
        """

    def settle(self) -> None:
        """The caller may change what has been encoded so far."""

    def took(self, seconds: float) -> float:
        """Seconds of the operation, which is done and took so many by the host's clock."""


class HostPlace:
    """NumPy's arrays.

    Parameters
    ----------
    scratch
        Lends message buffers.
    """

    on_device = False
    called: Any = None

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self.clock: Clock = HostClock()

    def memory(self, codec: Codec, dtype: np.dtype[Any], tally: Tally, *, sealed: bool) -> HostMemory:
        return HostMemory(codec, dtype, self._scratch, tally, sealed=sealed)

    def copy(self, target: Array, source: Array) -> None:
        target[...] = source

    def snapshot(self, values: Array) -> Array:
        return np.array(values)

    def sample(self, values: Array) -> Array:
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
        if dtype == source.dtype:
            return call(source, target)
        arrays = (source,) if target is source else (source, target)
        lent = [self._scratch.take(x.size * dtype.itemsize) for x in arrays]
        here, there = (lent[k][: x.size * dtype.itemsize].view(dtype) for k, x in ((0, source), (-1, target)))
        narrow(source.reshape(-1), here)
        return self._back(call(here, there), there, target, lent)

    def settle(self) -> None:
        pass

    def took(self, seconds: float) -> float:
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
        Of the device.
    caller
        Stream on which the caller makes and uses the arrays.
    """

    on_device = True

    def __init__(self, pools: Pools, caller: int) -> None:
        self._pools, self._caller, self._stream = pools, caller, pools.stream()
        self._accelerator = pools.accelerator
        self.clock: Clock = DeviceClock(pools.accelerator, caller, pools.spans)
        self.called: Any = self.clock.mark()
        self._ends: list[Event] = []
        self._follow()

    def memory(self, codec: Codec, dtype: np.dtype[Any], tally: Tally, *, sealed: bool) -> DeviceMemory:
        return DeviceMemory(codec, dtype, self._pools, self._stream, tally, self._ends.append, sealed=sealed)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        self._accelerator.copy(target, source, self._caller)
        self._follow()

    def snapshot(self, values: DeviceArray) -> DeviceArray:
        if not self._pools.aware:
            return values  # it is copied to the host
        taken = self._accelerator.memory(values.nbytes).view(values.dtype)
        self._accelerator.copy(taken, values, self._stream)
        return taken

    def sample(self, values: DeviceArray) -> Array:
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
        """A collective of the MPI library, which reads `source` and writes `target`, or what stands for them.

        Parameters
        ----------
        call
            Is given arrays of `dtype`: NumPy's, or of the device where the MPI library takes pointers. If source and
            target are one, they are one here too.
        source, target
            Values.
        dtype
            In which they travel, rounded; None leaves them as they are.
        on_host
            What MPI calls back for runs on the processor: the arrays are NumPy's, whatever the library takes.
        """
        # MPI wants its collectives called in the same order on all ranks: the values are waited for here and now
        staged = on_host or not self._pools.aware
        kind = dtype or source.dtype
        lent: list[tuple[Scratch, Any]] = []
        here, there = source, target
        if kind != source.dtype:
            here, there = self._room(self._pools.device, here, there, kind, lent)
            self._accelerator.convert(here, source, self._stream)
        sent, got = here, there
        if staged:
            here, there = self._room(self._pools.host, here, there, kind, lent)
            self._accelerator.copy(here, sent, self._stream)
        self._accelerator.mark(self._stream).wait()
        return self._back(call(here, there), [(got, there), (target, got)], lent) if lent else call(here, there)

    def settle(self) -> None:
        self._accelerator.follow(self._caller, self._accelerator.mark(self._stream))

    def took(self, seconds: float) -> float:
        return max((end.since(self._begin) for end in self._ends), default=seconds)  # without what it waited for

    def _room(
        self, pool: Scratch, source: Any, target: Any, dtype: np.dtype[Any], lent: list[tuple[Scratch, Any]]
    ) -> tuple[Any, Any]:
        """Arrays of a type for the source's values and the target's; one for both where they are one."""
        rooms = []
        for values in (source,) if target is source else (source, target):
            nbytes = values.size * dtype.itemsize
            lent.append((pool, pool.take(nbytes)))
            rooms.append(lent[-1][1][:nbytes].view(dtype))
        return rooms[0], rooms[-1]

    def _back(self, call: Slice, ways: list[tuple[DeviceArray, Any]], lent: list[tuple[Scratch, Any]]) -> Slice:
        """After the call its result goes the ways, each to the first array from the second one."""
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
    """The memories of a process; one serves all its groups.

    Parameters
    ----------
    aware
        Whether the MPI library takes device pointers, on all ranks: see `gpu_aware`.
    device_of
        Finds the device of an array that is not NumPy's.
    """

    def __init__(self, *, aware: bool = False, device_of: Callable[[Any], Accelerator] = accelerator_of) -> None:
        self._aware, self._device_of = aware, device_of
        self._host = HostPlace(Scratch())
        self._pools: dict[int, Pools] = {}

    def of(self, *arrays: Any) -> tuple[Place, tuple[Any, ...]]:
        """The place of arrays, and the arrays as its memory takes them.

        Raises
        ------
        TypeError
            An array is of no memory that is known here, or they are of different ones.
        """
        if isinstance(arrays[0], np.ndarray):
            if len(arrays) > 1 and not all(isinstance(x, np.ndarray) for x in arrays):
                raise TypeError("the arrays of one operation lie in one memory: copy one of them")
            return self._host, arrays
        accelerators = [self._device_of(x) for x in arrays]
        if len(set(map(id, accelerators))) > 1:
            raise TypeError("the arrays of one operation lie on one device: copy one of them")
        device = accelerators[0]
        if id(device) not in self._pools:
            self._pools[id(device)] = Pools(device, self._aware)
        caller = device.codecs.stream(None, arrays[0])
        return DevicePlace(self._pools[id(device)], caller), tuple(device.array(x, caller) for x in arrays)

    def clock(self, array: Any) -> Clock:
        """Of the process, where such an array lies."""
        place, _ = self.of(array)
        return place.clock

    @property
    def device_bytes(self) -> int:
        """Of the buffers that operations share on the devices; they are kept, so it is the most there ever were."""
        return sum(pools.device.nbytes for pools in self._pools.values())
