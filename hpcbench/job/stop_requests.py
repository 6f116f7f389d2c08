"""Stop requests: signals sent to the job script."""

import os
import select
import signal
from types import FrameType

SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "URG")
_EXITS = {"TERM": 143, "INT": 130, "HUP": 129, "USR2": 140}
_PREEMPTION_GRACE = 20.0
"""Seconds for a checkpoint after SIGTERM. Slurm kills a preempted job after 30 s."""


class StopRequests:
    """Reader of signals that request the job to stop.

    Parameters
    ----------
    descriptor
        File descriptor of the pipe to which the job script writes signal names.
    may_be_preempted
        Whether SIGTERM may mean that the scheduler preempts the job and restarts it later. If so, runs may write a
        checkpoint.
    """

    def __init__(self, descriptor: int, *, may_be_preempted: bool) -> None:
        self.stopping = False
        """Whether runs must write a checkpoint and exit."""
        self.leaving: int | None = None
        """Exit status with which the script must end immediately, or None if no such signal has arrived."""
        self.grace = 0.0
        """Seconds within which the run may exit on its own before it is killed."""
        self._descriptor = descriptor
        self._may_be_preempted = may_be_preempted
        os.set_blocking(descriptor, False)
        for name in SIGNALS:
            signal.signal(signal.Signals[f"SIG{name}"], self._handle)

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a signal, and handle it."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if ready:
            for name in os.read(self._descriptor, 4096).decode("ascii").split():
                self._note(name)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._note(signal.Signals(number).name.removeprefix("SIG"))

    def _note(self, name: str) -> None:
        if name in ("USR1", "URG"):
            self.stopping = True
        elif name in _EXITS:
            self.leaving = _EXITS[name]
            if name == "TERM" and self._may_be_preempted:
                self.stopping, self.grace = True, _PREEMPTION_GRACE
