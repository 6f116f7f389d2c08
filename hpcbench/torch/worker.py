"""A thread that does the encoded operations of a group, one after another, and PyTorch's handle of each."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import Work

Job = Callable[[], None]
Outcome = tuple[Any, BaseException | None]


def _result(future: "torch.futures.Future[Outcome]") -> Any:
    result, why = future.value()
    if why is not None:
        raise why
    return result


def handle(future: "torch.futures.Future[Any]") -> Work:
    """PyTorch's handle of work that ends with a future."""
    work: Work = c10d._create_work_from_future(future)  # type: ignore[attr-defined]
    return work


def finished_by(start: Callable[[Callable[[], None]], None], job: Job, result: Any) -> Work:
    """The handle of a job that `start` has done by somebody, sooner or later.

    An exception that is set on a future is none for C++, where DDP's reducer would take it for a list of tensors.
    Raised in a callback of the future it is one.
    """
    future: torch.futures.Future[Outcome] = torch.futures.Future()
    outcome = future.then(_result)

    def run() -> None:
        why: BaseException | None = None
        try:
            job()
        except BaseException as error:  # noqa: BLE001, RUF100 - whoever waits raises it
            why = error
        future.set_result((result, why))

    start(run)
    return handle(outcome)


class Worker:
    """Does jobs in the order in which they come. Its thread begins with the first one.

    Parameters
    ----------
    name
        Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def later(self, job: Job, result: Any) -> Work:
        """Have a job done, and return its handle, whose result is `result`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return finished_by(self._jobs.put, job, result)

    def stop(self, patience_s: float) -> bool:
        """Let the thread end after its jobs; a later job begins another one.

        The result tells whether it has ended within `patience_s` seconds.
        """
        if self._thread is None:
            return True
        thread, self._thread = self._thread, None
        self._jobs.put(None)
        thread.join(patience_s)
        return not thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # tensors of a finished job are not kept until the next one


def apart(job: Job, result: Any) -> Work:
    """Have a job done in a thread of its own: one that waits for a message may wait long, and hinders no other."""
    return finished_by(lambda run: threading.Thread(target=run, daemon=True).start(), job, result)
