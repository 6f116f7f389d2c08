"""Log file of `hpcbench run --log`: a program's traffic as events, as in logs of a study."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcbench import __version__
from hpcbench.contract.events import Configuration, End, Event, Start
from hpcbench.contract.interpose import Interposition
from hpcbench.contract.times import format_now
from hpcbench.errors import UserError
from hpcbench.files import shown_path
from hpcbench.programs.launch import Ended
from hpcbench.programs.sent import events


class Log:
    """An event log. The file is created before the program starts, so that an invalid path fails early.

    Parameters
    ----------
    path
        File path. An existing file is replaced.
    command
        The program, including its launcher.
    settings
        The user's settings.

    Raises
    ------
    UserError
        The file is not writable.
    """

    def __init__(self, path: Path, command: Sequence[str], settings: Interposition) -> None:
        self._path, self._scheme, self._begin = path, settings.scheme, time.monotonic()
        asked = settings.model_dump(mode="json", exclude={"out"})
        self._write([_start(settings), Configuration.of_program({"command": list(command), **asked})], "w")

    def close(self, ended: Ended, idle: str | None) -> None:
        """Write events for the traffic and the end of the program.

        Parameters
        ----------
        idle
            Message for a scheme that did not encode any call, or None.

        Raises
        ------
        UserError
            The file is not writable.
        """
        # the program's output is not read, so its steps are unknown
        traffic = list(events(ended.ranks, self._scheme, (None, None))) if ended.ranks else []
        state = "failed" if ended.status or not ended.ranks or idle else "completed"
        seconds = time.monotonic() - self._begin
        self._write(
            [*traffic, End(time=format_now(), state=state, steps=None, seconds=seconds, reason=_reason(ended, idle))],
            "a",
        )

    def _write(self, log_events: Iterable[Event], mode: str) -> None:
        try:
            with self._path.open(mode, encoding="utf-8") as stream:
                stream.writelines(f"{event.to_line()}\n" for event in log_events)
        except OSError as error:
            raise UserError(
                f"--log {shown_path(self._path)}: {error.strerror}: give a file in a writable directory"
            ) from None


def _reason(ended: Ended, idle: str | None) -> str | None:
    reported = len(ended.ranks)
    reasons = [f"exit status {ended.status}"] if ended.status else []
    if reported < max(ended.world, 1):
        reasons.append(f"{reported} of {ended.world} ranks have reported" if ended.world else "no rank has reported")
    if idle:
        reasons.append(idle)
    return ", ".join(reasons) or None


def _start(settings: Interposition) -> Start:
    """Return the start event of a program that is not part of a study. Study fields are null."""
    return Start(
        time=format_now(),
        schema=None,
        version=__version__,
        study=None,
        run=None,
        site=None,
        repeat=None,
        pairing=None,
        cell=None,
        scheme=settings.scheme.name,
        attempt=None,
        resumed_from=None,
    )
