"""Calls of a scheduler's programs: bounded in time, and with an answer whatever their exit status."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.errors import UserError

PATIENCE = 90.0
"""Seconds that a program may take: Slurm's give up by themselves after 20 to 60 if the controller does not answer."""

_MANY = 200


class SilenceError(UserError):
    """A program did not come to an end in time."""


@dataclass(frozen=True)
class Answer:
    """What a program said."""

    argv: Sequence[str]
    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Both streams, for people."""
        return "\n".join(part for part in (self.out.strip(), self.err.strip()) if part)

    @property
    def first_line(self) -> str:
        """The line that most likely says what is wrong: a numbered one, as LSF's filters have it, goes first."""
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        numbered = [line for line in lines if self.status and re.match(r"\d+: \S", line)]
        errors = numbered or [line for line in lines if "error" in line.lower()]
        return (errors or lines or [f"no output, exit status {self.status}"])[-1 if errors else 0]


def ask(
    argv: Sequence[str], environment: Mapping[str, str], *, patience: float | None = None, cwd: Path | None = None
) -> Answer:
    """Run one of a scheduler's programs.

    It gets a process group of its own, so that at a time-out all of it is ended, wrappers of the site included.

    Raises
    ------
    SilenceError
        It took too long.
    UserError
        There is no such program.
    """
    patience = PATIENCE if patience is None else patience
    try:
        process = subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise UserError(f"{argv[0]}: cannot be run: {error.strerror}: be on the machine's login node") from None
    try:
        out, err = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        _end(process)
        raise SilenceError(f"{argv[0]} did not answer within {patience:.0f} s") from None
    except BaseException:
        _end(process)
        raise
    return Answer(tuple(argv), process.returncode, out, err)


def _end(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # what left the group may hold the pipes for ever
        process.communicate(timeout=2)


def portions(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """So many at once as a command line holds."""
    for begin in range(0, len(ids), _MANY):
        yield ids[begin : begin + _MANY]
