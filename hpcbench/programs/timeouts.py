"""`work.wait(timeout)` for encoded calls. PyTorch's future-based handles do not support timeouts."""

import functools
import threading
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Work

_REFUSES = "finite timeout not implemented"
_NO_TIMEOUT = timedelta(0)


class TimedWait:
    """Replacement for the `wait` method of all handles, with timeouts where PyTorch does not support them."""

    def __init__(self) -> None:
        self._real: Any = None

    def watch(self) -> None:
        """Install the replacement."""
        real = self._real = Work.wait

        @functools.wraps(real)
        def wait(work: Work, timeout: timedelta = _NO_TIMEOUT) -> bool:
            try:
                return bool(real(work, timeout))
            except RuntimeError as error:
                if _REFUSES not in str(error):
                    raise
            return _wait(work, timeout)

        setattr(Work, "wait", wait)  # noqa: B010 - a method is not assigned to otherwise

    def unwatch(self) -> None:
        """Restore PyTorch's method."""
        setattr(Work, "wait", self._real)  # noqa: B010


def _wait(work: Work, timeout: timedelta) -> bool:
    future, over = work.get_future(), threading.Event()
    future.add_done_callback(lambda _: over.set())
    if not over.wait(timeout.total_seconds()):
        raise RuntimeError(f"hpcbench: an encoded call did not finish within {timeout.total_seconds():g} s")
    future.wait()
    return True
