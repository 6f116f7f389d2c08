"""A thread that carries out the encoded operations of a group in order, and PyTorch's handles of its jobs."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import Work

Job = Callable[[], None]
Outcome = tuple[Any, BaseException | None]


def make_handle(future: "torch.futures.Future[Any]") -> Work:
    """Return PyTorch's handle of work that ends with a future."""
    work: Work = c10d._create_work_from_future(future)  # type: ignore[attr-defined]
    return work


def start(starter: Callable[[Job], None], job: Job, result: Any) -> Work:
    """Start a job and return its handle.

    An exception that is set on a future is none for C++, where DDP's reducer would take it for a list of tensors.
    Raised in a callback of the future it is one.

    Parameters
    ----------
    starter
        Function that has another thread run the job.
    result
        Result of the handle.
    """
    future: torch.futures.Future[Outcome] = torch.futures.Future()
    outcome = future.then(_unpack)

    def run() -> None:
        failure: BaseException | None = None
        try:
            job()
        except BaseException as error:  # noqa: BLE001, RUF100 - whoever waits raises it
            failure = error
        future.set_result((result, failure))

    starter(run)
    return make_handle(outcome)


class JobThread:
    """A thread that does jobs in the order in which they are submitted. It starts with the first one.

    Parameters
    ----------
    name
        Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Job, result: Any) -> Work:
        """Submit a job, and return its handle, whose result is `result`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return start(self._jobs.put, job, result)

    def stop(self, patience_s: float) -> bool:
        """End the thread after its jobs, and return whether it has ended within `patience_s` seconds.

        A later job starts another thread.
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


def start_in_thread(job: Job, result: Any) -> Work:
    """Start a job in a new thread, and return its handle: a job that waits for a message delays no other one."""
    return start(lambda run: threading.Thread(target=run, daemon=True).start(), job, result)


def _unpack(future: "torch.futures.Future[Outcome]") -> Any:
    result, failure = future.value()
    if failure is not None:
        raise failure
    return result
