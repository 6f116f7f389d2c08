"""The run's log: lines that a person can read and the collector parses without guessing."""

from datetime import datetime, timezone
from typing import TextIO

from hpcbench.contract import step_line
from hpcbench.contract.events import Event
from hpcbench.contract.step_line import Step


def now() -> str:
    """The time in UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LogWriter:
    """Writes the log of a run.

    Parameters
    ----------
    stream
        Stream of the log. None writes nothing, as on ranks other than the first.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def event(self, event: Event) -> None:
        """Write an event."""
        self._write(event.to_line())

    def step(self, step: Step) -> None:
        """Write a step line."""
        self._write(step_line.format(step))

    def _write(self, line: str) -> None:
        if self._stream is not None:
            self._stream.write(line + "\n")
            self._stream.flush()
