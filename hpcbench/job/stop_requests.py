"""Stop requests: the signals that the script of a job gets."""

import os
import select
import signal
from types import FrameType

SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "URG")
_EXITS = {"TERM": 143, "INT": 130, "HUP": 129, "USR2": 140}
_PREEMPTION_GRACE = 20.0
"""Seconds for a checkpoint after TERM. Slurm kills a preempted job after 30 s."""


class StopRequests:
    """Reader of the signals that ask the job to stop.

    Parameters
    ----------
    descriptor
        Pipe to which the job script writes the names of its signals.
    may_be_preempted
        Whether TERM may be a preemption after which the scheduler runs the job again: then a run may write its
        checkpoint.
    """

    def __init__(self, descriptor: int, *, may_be_preempted: bool) -> None:
        self.stopping = False
        """Whether runs must write a checkpoint and end."""
        self.leaving: int | None = None
        """Exit status with which the script must end immediately; None without such a signal."""
        self.grace = 0.0
        """Seconds in which the run may end by itself before it is killed."""
        self._descriptor = descriptor
        self._may_be_preempted = may_be_preempted
        os.set_blocking(descriptor, False)
        for name in SIGNALS:
            signal.signal(signal.Signals[f"SIG{name}"], self._handle)

    def wait(self, seconds: float) -> None:
        """Wait at most this time for a signal, and note it."""
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
