"""The order of a group's calls while its ranks have yet to decide how to carry some of them out.

A decision needs all ranks, and the caller's thread must not wait for them: ranks may begin calls of several groups in
different orders. So the first calls of a kind wait in a thread. Later calls of the group queue behind them. Every rank
then begins the calls in the order of the program, whenever it learns of the decision.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from hpcbench.programs.worker import JobThread


class CallOrder:
    """Queue of one group's calls.

    Parameters
    ----------
    name
        Name of the thread in which calls wait.
    """

    def __init__(self, name: str) -> None:
        self._thread = JobThread(name)
        self._waiting = 0
        self._lock = threading.Lock()

    def begin(self, call: Callable[[], Work], result: Any) -> Work:
        """Begin a call and return its handle. If earlier calls wait, it begins after them, otherwise immediately.

        Parameters
        ----------
        call
            Function that begins the call.
        result
            Result of the handle of a call that has to wait.
        """
        return self.queue(call, result) if self._waiting else call()

    def queue(self, call: Callable[[], Work], result: Any) -> Work:
        """Queue a call that may block on other ranks, and return its handle. It begins after all queued calls."""

        def carry_out() -> None:
            try:
                # the caller's thread is below autograd here, and tensors may require gradients
                with torch._C._AutoDispatchBelowAutograd():
                    call().wait()
            finally:
                self._count(-1)

        self._count(1)
        return self._thread.submit(carry_out, result)

    def stop(self, patience_s: float) -> None:
        """End the thread after the calls that wait."""
        self._thread.stop(patience_s)

    def _count(self, change: int) -> None:
        with self._lock:
            self._waiting += change
