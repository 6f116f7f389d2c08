"""Order of a group's calls while the ranks decide how to execute some of them.

A decision needs all ranks, but the caller's thread must not wait for other ranks, because ranks may start calls of
several groups in different orders. Therefore, the first calls of each kind wait in a separate thread, and later calls
of the group are queued after them. Every rank then starts the calls in program order, regardless of when it learns of
the decision.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from hpcbench.programs.worker import JobThread


class CallOrder:
    """Call queue of one group.

    Parameters
    ----------
    name
        Name of the thread that runs queued calls.
    """

    def __init__(self, name: str) -> None:
        self._thread = JobThread(name)
        self._waiting = 0
        self._lock = threading.Lock()

    def begin(self, call: Callable[[], Work], result: Any) -> Work:
        """Start a call and return its handle. If earlier calls are queued, the call is queued after them.

        Parameters
        ----------
        call
            Function that starts the call.
        result
            Result of the returned handle if the call is queued.
        """
        return self.queue(call, result) if self._waiting else call()

    def queue(self, call: Callable[[], Work], result: Any) -> Work:
        """Queue a call that may block on other ranks, and return its handle.

        The call starts after all previously queued calls.
        """

        def carry_out() -> None:
            try:
                # the caller's thread runs below autograd here, and tensors may require gradients
                with torch._C._AutoDispatchBelowAutograd():
                    call().wait()
            finally:
                self._count(-1)

        self._count(1)
        return self._thread.submit(carry_out, result)

    def stop(self, patience_s: float) -> None:
        """Stop the thread after all queued calls."""
        self._thread.stop(patience_s)

    def _count(self, change: int) -> None:
        with self._lock:
            self._waiting += change
