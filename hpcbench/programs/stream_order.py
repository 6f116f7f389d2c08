"""Ordering of encoded operations relative to other device work, with private streams and events on GPUs.

A GPU operation runs on a private stream, which first waits for the caller's current stream. `wait` of the operation's
handle makes the current stream wait for the private stream. Only streams wait, not host threads. Memory is allocated by
PyTorch's caching allocator. Temporary buffers belong to the private stream, and only this stream reuses them. The
caller's tensors belong to other streams, so they are kept alive until the operation's last event.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import Work

from hpcbench.programs.worker import make_handle as make_future_handle


class StreamPoint(Protocol):
    """A position in the sequence of a stream's work."""

    def done(self) -> bool:
        """Return whether the stream has reached the position. This method does not block."""

    def since(self, earlier: Any) -> float:
        """Return the time in seconds between two positions that the stream has reached."""


class StreamOrder(ABC):
    """Order of one group's operations on one device."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[StreamPoint, object, Callable[[], None]]] = deque()

    @abstractmethod
    def follow_caller(self) -> Any:
        """Return a context whose work runs after all work that the caller has enqueued so far.

        Later work of the caller may run concurrently.
        """

    @abstractmethod
    def mark(self) -> StreamPoint:
        """Mark the current end of the private stream's work."""

    @abstractmethod
    def make_handle(self, result: Sequence[torch.Tensor]) -> Work:
        """Return a handle whose `wait` makes the current stream wait for all work enqueued so far."""

    @abstractmethod
    def is_capturing(self) -> bool:
        """Return whether the caller's stream is being captured into a CUDA graph, which would not replay host code."""

    def keep(self, tensors: object, at_end: Callable[[], None]) -> None:
        """Keep tensors of the caller alive until the private stream has finished its work, then call `at_end`."""
        self._under_way.append((self.mark(), tensors, at_end))

    def release_finished(self) -> None:
        """Release the tensors of finished operations without blocking."""
        while self._under_way and self._under_way[0][0].done():
            _, _, at_end = self._under_way.popleft()
            at_end()


class HostMark:
    """A position in host work, given by its time. Host work is synchronous, so every position is reached."""

    def __init__(self) -> None:
        self._at = time.perf_counter()

    def done(self) -> bool:
        """Return True, because host work is synchronous."""
        return True

    def since(self, earlier: "HostMark") -> float:
        """Return the time in seconds between two marks."""
        return self._at - earlier._at


class HostOrder(StreamOrder):
    """Order of host work, which equals the order of calls."""

    @contextmanager
    def follow_caller(self) -> Iterator[None]:
        """Return a no-op context."""
        yield

    def mark(self) -> HostMark:
        """Return the current time."""
        return HostMark()

    def make_handle(self, result: Sequence[torch.Tensor]) -> Work:
        """Return a completed handle."""
        return make_finished_handle(result, [])

    def is_capturing(self) -> bool:
        """Return False, because the host has no graphs."""
        return False


class CudaMark:
    """An event recorded on the current stream."""

    def __init__(self, cuda: Any) -> None:
        self.event = cuda.Event(enable_timing=True)
        self.event.record()

    def done(self) -> bool:
        """Return whether the stream has reached the event."""
        return bool(self.event.query())

    def since(self, earlier: "CudaMark") -> float:
        """Return the time in seconds between two events, measured by the GPU."""
        return float(earlier.event.elapsed_time(self.event)) * 1e-3


class CudaOrder(StreamOrder):
    """Order of work on a GPU.

    Parameters
    ----------
    device
        The GPU.
    cuda
        PyTorch module for streams and events. Tests supply a fake.
    """

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        super().__init__()
        self._device, self._cuda = device, cuda
        self._stream: Any = None

    @contextmanager
    def follow_caller(self) -> Iterator[None]:
        """Make the private stream current, ordered after the work on the caller's stream."""
        cuda = self._cuda
        if self._stream is None:
            self._stream = cuda.Stream(self._device)
        self._stream.wait_stream(cuda.current_stream(self._device))
        with cuda.stream(self._stream):
            yield

    def mark(self) -> CudaMark:
        """Record an event on the current stream."""
        return CudaMark(self._cuda)

    def make_handle(self, result: Sequence[torch.Tensor]) -> Work:
        """Return a handle whose `wait` makes the caller's current stream wait for the private stream.

        When a PyTorch future receives its result, it records an event on the current stream of each device
        (ATen/core/ivalue_inl.h, `markCompleted`). The future's `wait` makes streams wait for these events.
        """
        return make_finished_handle(result, [self._device])

    def is_capturing(self) -> bool:
        """Return whether the caller's current stream is being captured."""
        return bool(self._cuda.is_current_stream_capturing())


def make_finished_handle(result: Sequence[torch.Tensor], devices: list[torch.device]) -> Work:
    """Return a handle of a result that has been enqueued on the current streams of these devices."""
    future: torch.futures.Future[Any] = torch.futures.Future(devices=devices)  # type: ignore[arg-type]
    future.set_result(list(result))
    return make_future_handle(future)


def order_of(device: torch.device) -> StreamOrder:
    """Create the order for a device."""
    return HostOrder() if device.type == "cpu" else CudaOrder(device)
