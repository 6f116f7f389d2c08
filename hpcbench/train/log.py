"""Log of a run. The lines are human-readable, and the collector can parse them unambiguously."""

import contextlib
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

from hpcbench.contract import step_line
from hpcbench.contract.events import End, Event, TrafficTotals
from hpcbench.contract.step_line import Step


def now() -> str:
    """Return the current UTC time with millisecond resolution."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LogWriter:
    """Writer of a run's log.

    Parameters
    ----------
    stream
        Output stream of the log, or None on all ranks except the first, which write no log.
    room
        File that reserves disk space for the final events. The file is removed before these events are written.
    """

    def __init__(self, stream: TextIO | None, room: Path | None = None) -> None:
        self._stream = stream
        self._room = room

    def event(self, event: Event) -> None:
        """Write an event."""
        if self._room is not None and self._stream is not None and isinstance(event, TrafficTotals | End):
            with contextlib.suppress(OSError):  # the write below reports disk errors
                self._room.unlink(missing_ok=True)
        self._write(event.to_line())

    def step(self, step: Step) -> None:
        """Write a step line."""
        self._write(step_line.format_step(step))

    def _write(self, line: str) -> None:
        if self._stream is not None:
            self._stream.write(line + "\n")
            self._stream.flush()
