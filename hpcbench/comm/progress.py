"""Progress of operations while their caller waits or computes.

An MPI library moves messages only inside MPI calls. Nonblocking collectives of the library often progress only while
the caller waits for them. Each library has its own remedy, such as progress threads, which are enabled by environment
variables and occupy one core each. In hpcbench, operations are generators of point-to-point messages. The caller tests
the messages while it waits. A thread tests the messages while the caller computes. Only one of the two threads makes
MPI calls at a time. Every library with ``MPI_THREAD_SERIALIZED`` allows this: MPICH, Open MPI, MVAPICH and their
derivatives.
"""

import threading
import time
from collections.abc import Iterable, Iterator

from mpi4py import MPI

from hpcbench.comm.memory import Pending, Slice
from hpcbench.comm.wait import Wait
from hpcbench.errors import UserError

_LEVELS = {MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE", MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED"}
"""MPI thread levels at which a background progress thread is not allowed."""


class SliceQueue:
    """The slices of a call, executed concurrently.

    Parameters
    ----------
    slices
        Slices in starting order.
    depth
        Maximum number of slices in flight.
    at_once
        Whether to start in the caller's thread. MPI's own collectives must start in the same order on every rank.
    """

    def __init__(self, slices: Iterable[Slice], depth: int, *, at_once: bool = False) -> None:
        self._to_come: Iterator[Slice] = iter(slices)
        self._depth = depth
        self.at_once = at_once
        self._under_way: list[_UnderWay] = []
        self.done = False
        self.error: BaseException | None = None
        self.begun = time.perf_counter()
        self.seconds = 0.0
        """Seconds from start to end."""

    def advance(self) -> bool:
        """Advance all slices whose messages have arrived. Return whether any slice advanced."""
        try:
            moved = self._advance()
        except BaseException as error:
            self.error, self.done = error, True
            return True
        if self.done:
            self.seconds = time.perf_counter() - self.begun
        return moved

    def _advance(self) -> bool:
        moved = False
        for slice_ in list(self._under_way):
            if slice_.advance():
                moved = True
                if slice_.ended:
                    self._under_way.remove(slice_)
        while len(self._under_way) < self._depth:
            coming = next(self._to_come, None)
            if coming is None:
                self.done = not self._under_way
                break
            moved = True
            begun = _UnderWay(coming)
            if not begun.ended:
                self._under_way.append(begun)
        return moved


class _UnderWay:
    """A slice that waits for requests or for device work."""

    def __init__(self, slice_: Slice) -> None:
        self._slice = slice_
        self.ended = False
        self._awaited: list[MPI.Request] | Pending = []
        self._statuses: list[MPI.Status] = []
        self._resume(first=True)

    def advance(self) -> bool:
        moved = False
        while not self.ended:
            awaited = self._awaited
            if not (MPI.Request.Testall(awaited, self._statuses) if isinstance(awaited, list) else awaited.done()):
                break
            self._resume()
            moved = True
        return moved

    def _resume(self, *, first: bool = False) -> None:
        try:
            awaited = self._awaited = next(self._slice) if first else self._slice.send(self._statuses)
        except StopIteration:
            self.ended = True
        else:
            self._statuses = [MPI.Status() for _ in awaited] if isinstance(awaited, list) else []


class Progress:
    """Driver of the operations of one process.

    Parameters
    ----------
    wait
        Wait strategy between two tests.
    background
        Whether a thread drives operations while the caller computes.

    Raises
    ------
    UserError
        `background` is set, but the MPI library does not allow a second thread.
    """

    def __init__(self, wait: Wait, *, background: bool = False) -> None:
        if background and MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            granted = _LEVELS[MPI.Query_thread()]
            raise UserError(
                "train.overlap: messages that move during the computation need MPI_THREAD_SERIALIZED, and this MPI "
                f"library grants {granted}: set train.overlap to false, or use an MPI library with thread support"
            )
        self.wait, self.background = wait, background
        self._operations: list[SliceQueue] = []
        self._drives = threading.Lock()
        """Lock held by the thread that makes MPI calls."""
        self._work = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, operation: SliceQueue) -> None:
        """Start an operation, which progresses whenever this process waits for any operation."""
        if operation.at_once:
            with self._drives:
                operation.advance()
        self._operations.append(operation)

    def keep_moving(self) -> None:
        """Drive operations while the caller computes. Without a background thread, only start them.

        The method is not called for each operation, because waking a thread costs more than a small message.
        """
        if not self.background:
            with self._drives:
                self._sweep()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)
            self._thread.start()
        self._work.set()

    def finish(self, operation: SliceQueue) -> None:
        """Wait until the operation is done. Other operations also progress.

        Raises
        ------
        BaseException
            The exception that terminated the operation.
        """
        moved = time.perf_counter()
        with self._drives:
            while not operation.done:
                now = time.perf_counter()
                if self._sweep():
                    moved = now
                else:
                    self.wait.pause(now - moved)
        if operation.error is not None:
            raise operation.error

    def complete(self, requests: list[MPI.Request]) -> None:
        """Wait for the caller's requests with the process's wait strategy."""

        def alone() -> Slice:
            yield requests

        operation = SliceQueue([alone()], 1, at_once=True)
        self.start(operation)
        self.finish(operation)

    def _sweep(self) -> bool:
        moved = False
        for operation in list(self._operations):
            moved |= operation.done or operation.advance()
            if operation.done:
                self._operations.remove(operation)
        return moved

    def _loop(self) -> None:
        moved = time.perf_counter()
        while True:
            if not self._operations:
                self._work.clear()
                if not self._operations:
                    self._work.wait()
            with self._drives:
                now = time.perf_counter()
                if self._sweep():
                    moved = now
            Wait.GIVE_WAY.pause(now - moved)  # the computation needs the cores
