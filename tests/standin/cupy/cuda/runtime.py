"""The functions of the CUDA runtime that hpcbench calls."""

import ctypes
import operator

from cupy.cuda.errors import CUDARuntimeError, invalid
from cupy.cuda.memory import holder
from cupy.cuda.stream import put, record, wait_event

__all__ = ["CUDARuntimeError"]
memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice, memcpyDefault = range(5)  # noqa: N816


def getDevice() -> int:  # noqa: N802
    return 0


def getDeviceCount() -> int:  # noqa: N802
    return 1


def setDevice(number: int) -> None:  # noqa: N802
    if operator.index(number) != 0:
        raise invalid(f"device {number} does not exist")


def getDeviceProperties(number: int) -> dict[str, object]:  # noqa: N802
    setDevice(number)
    return {"name": b"Stand-in"}


def runtimeGetVersion() -> int:  # noqa: N802
    return 13000


def driverGetVersion() -> int:  # noqa: N802
    return 13000


def memGetInfo() -> tuple[int, int]:  # noqa: N802
    return 2**30, 2**30


def memcpyAsync(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:  # noqa: N802
    """Copy in stream order. The direction must match the locations of both arrays."""
    to, of = holder(target, nbytes), holder(source, nbytes)
    if kind != memcpyDefault and kind != (of is not None) * 2 + (to is not None):
        raise invalid(f"a copy of kind {kind} from {'device' if of is not None else 'host'} memory")

    def copy(keep: object = (to, of)) -> None:
        ctypes.memmove(target, source, nbytes)

    put(stream, copy)


def memsetAsync(pointer: int, value: int, nbytes: int, stream: int) -> None:  # noqa: N802
    """Set device memory in stream order."""
    to = holder(pointer, nbytes)
    if to is None:
        raise invalid("memory of the host cannot be set by the device")

    def fill(keep: object = to) -> None:
        ctypes.memset(pointer, value, nbytes)

    put(stream, fill)


def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:  # noqa: N802
    wait_event(stream, event)


def eventRecord(event: int, stream: int) -> None:  # noqa: N802
    record(event, stream)
