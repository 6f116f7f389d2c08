"""A thread that executes a group's encoded operations in order, and PyTorch handles of its jobs."""

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
    """Return a PyTorch handle of work that completes with a future."""
    work: Work = c10d._create_work_from_future(future)  # type: ignore[attr-defined]
    return work


def start(starter: Callable[[Job], None], job: Job, result: Any) -> Work:
    """Start a job and return its handle.

    C++ code does not see an exception that is set on a future: DDP's reducer would treat the exception as a list of
    tensors. C++ code does see an exception that a callback of the future raises.

    Parameters
    ----------
    starter
        Function that runs the job in another thread.
    result
        Result of the returned handle.
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
    """A thread that runs jobs in submission order. The thread starts with the first job.

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
        """Submit a job and return a handle with the given result."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return start(self._jobs.put, job, result)

    def stop(self, patience_s: float) -> bool:
        """Stop the thread after its queued jobs. Return whether the thread has ended within `patience_s` seconds.

        A later job starts a new thread.
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
            del job  # do not keep a finished job's tensors alive until the next job


def start_in_thread(job: Job, result: Any) -> Work:
    """Run a job in a new thread and return its handle. The thread may wait for messages without delaying other jobs."""
    return start(lambda run: threading.Thread(target=run, daemon=True).start(), job, result)


def _unpack(future: "torch.futures.Future[Outcome]") -> Any:
    result, failure = future.value()
    if failure is not None:
        raise failure
    return result
