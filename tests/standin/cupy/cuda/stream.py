"""Streams as lists of work, and events.

Work runs only when something waits for it. The first query of an event reports that the event is incomplete. The second
query runs all work before the event. A single lock makes streams and events thread-safe.
"""

import operator
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from cupy.cuda.errors import CUDARuntimeError, unknown_handle

LOCK = threading.RLock()
NULL = 0


class Queue:
    """The work of a stream, and how much of the work has run."""

    def __init__(self) -> None:
        self.todo: list[Callable[[], object] | None] = []
        self.done = 0

    def drain(self, end: int) -> None:
        while self.done < end:
            work, self.todo[self.done] = self.todo[self.done], None
            self.done += 1
            assert work is not None
            work()


_queues: dict[int, Queue] = {NULL: Queue()}
_handles = iter(range(0x51000, sys.maxsize, 16))


def queue_of(handle: object) -> Queue:
    """Return the queue of a stream handle, which is an integer as in CUDA."""
    number = operator.index(handle)  # type: ignore[arg-type]
    if number not in _queues:
        raise unknown_handle(f"stream {number:#x} does not exist, or it was destroyed")
    return _queues[number]


def put(handle: object, work: Callable[[], object]) -> None:
    with LOCK:
        queue_of(handle).todo.append(work)


def synchronize(handle: object) -> None:
    with LOCK:
        queue = queue_of(handle)
        queue.drain(len(queue.todo))


def drain_all() -> None:
    for queue in list(_queues.values()):
        queue.drain(len(queue.todo))


class _Current(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = [Stream.null]


class _BaseStream:
    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def __enter__(self) -> "_BaseStream":
        queue_of(self.ptr)
        _current.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.stack.pop()

    def synchronize(self) -> None:
        synchronize(self.ptr)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


class Stream(_BaseStream):
    """A stream that is ordered only by events. A stream created here is destroyed with its object."""

    null: "Stream"

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        if not null and not non_blocking:
            raise NotImplementedError("the stand-in has no blocking streams")
        super().__init__(NULL if null else next(_handles))
        self._foreign: Any = None
        _queues.setdefault(self.ptr, Queue())

    @classmethod
    def from_external(cls, stream: Any) -> "Stream":
        """Wrap a stream of another library, which is not destroyed with the wrapper (CuPy 14.0 to 14.2)."""
        if not hasattr(stream, "__cuda_stream__"):
            raise TypeError(f"{type(stream).__name__} does not implement the CUDA stream protocol")
        version, handle = stream.__cuda_stream__()
        if (type(version), type(handle), version) != (int, int, 0):
            raise TypeError(f"__cuda_stream__ gave {version!r} and {handle!r}")
        wrapped = cls.__new__(cls)
        _BaseStream.__init__(wrapped, handle)
        wrapped._foreign = stream
        return wrapped

    def __del__(self) -> None:
        if self.ptr != NULL and self._foreign is None and not sys.is_finalizing():
            synchronize(self.ptr)  # CUDA completes the work of a destroyed stream
            del _queues[self.ptr]


class ExternalStream(_BaseStream):
    """CuPy 13's class for streams of other libraries."""

    def __init__(self, ptr: int) -> None:
        message = "ExternalStream is deprecated. Use Stream.from_external() instead"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        super().__init__(operator.index(ptr))


Stream.null = Stream(null=True)
_current = _Current()


def get_current_stream() -> Any:
    return _current.stack[-1]


class Event:
    """A point in a stream's work. `ptr` is the handle for functions of `runtime`."""

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.ptr = next(_handles)
        self._state = _Recorded(timed=not disable_timing)
        _states[self.ptr] = self._state

    def __del__(self) -> None:
        _states.pop(self.ptr, None)

    @property
    def done(self) -> bool:
        return self._state.ask()

    def record(self, stream: Any = None) -> None:
        record(self.ptr, (stream or get_current_stream()).ptr)

    def synchronize(self) -> None:
        self._state.wait()


class _Recorded:
    """The last record of an event: its position in a queue, and the time when it was reached."""

    def __init__(self, timed: bool) -> None:
        self.timed = timed
        self.queue, self.end = Queue(), 0  # an event without a record is complete
        self.time: float | None = None
        self._asked = False

    def record(self, queue: Queue) -> None:
        self.queue, self.time, self._asked = queue, None, False

        def reach() -> None:
            self.time = time.perf_counter()

        queue.todo.append(reach)
        self.end = len(queue.todo)

    def ask(self) -> bool:
        with LOCK:
            if self._asked:
                self.queue.drain(self.end)
            self._asked = True
            return self.queue.done >= self.end

    def wait(self) -> None:
        with LOCK:
            self.queue.drain(self.end)


_states: dict[int, _Recorded] = {}


def _state(handle: object) -> _Recorded:
    number = operator.index(handle)  # type: ignore[arg-type]
    if number not in _states:
        raise unknown_handle(f"event {number:#x} does not exist")
    return _states[number]


def record(event: object, stream: object) -> None:
    with LOCK:
        _state(event).record(queue_of(stream))


def wait_event(stream: object, event: object) -> None:
    """Make a stream wait for the most recent record of an event."""
    with LOCK:
        state = _state(event)
        queue, end = state.queue, state.end
        queue_of(stream).todo.append(lambda: queue.drain(end))


def get_elapsed_time(begin: Event, end: Event) -> float:
    """Return the time between two completed events in milliseconds."""
    first, last = begin._state, end._state
    if not (first.timed and last.timed):
        raise unknown_handle("an event without a time")
    if first.time is None or last.time is None:
        raise CUDARuntimeError("cudaErrorNotReady", "the stream has not reached the event")
    return 1e3 * (last.time - first.time)
