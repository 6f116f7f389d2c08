"""Calls of a scheduler's programs: bounded in time, and with an answer whatever their exit status."""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
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
    def errors(self) -> list[str]:
        """The lines that say what is wrong: numbered ones, as LSF's filters have them, else errors, else all."""
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        numbered = [line for line in lines if self.status and re.match(r"\d+: \S", line)]
        return numbered[-1:] or [line for line in lines if "error" in line.lower()] or lines

    @property
    def first_line(self) -> str:
        """The line that most likely says what is wrong: the first error, and the last, which may say what followed."""
        lines = self.errors or [f"no output, exit status {self.status}"]
        last = lines[-1] if "error" in lines[-1].lower() else lines[0]
        return "; ".join(dict.fromkeys((lines[0], last)))


def program(argv: Sequence[str]) -> str:
    """Name of the program that is called: a shell that only hands on standard input has it as its fourth argument."""
    return argv[3] if argv[0] == "bash" else argv[0]


def ask(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    patience: float | None = None,
    cwd: Path | None = None,
    hangs: "re.Pattern[str] | None" = None,
) -> Answer:
    """Run one of a scheduler's programs.

    It gets a process group of its own, so that at a time-out all of it is ended, wrappers of the site included.

    Parameters
    ----------
    hangs
        Words by which the program says that nobody answers it, and that it goes on trying: it is ended there.

    Raises
    ------
    SilenceError
        It took too long, or said that nobody answers.
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
            start_new_session=True,
        )
    except OSError as error:
        raise UserError(f"{argv[0]}: cannot be run: {error.strerror}: be on the machine's login node") from None
    try:
        out, err = _listen(process, time.monotonic() + patience, hangs)
    except TimeoutError as error:
        _end(process)
        raise SilenceError(f"{program(argv)}{str(error) or f' did not answer within {patience:.0f} s'}") from None
    except BaseException:
        _end(process)
        raise
    return Answer(tuple(argv), process.returncode, out, err)


def _listen(process: "subprocess.Popen[bytes]", deadline: float, hangs: "re.Pattern[str] | None") -> tuple[str, str]:
    """Both streams to their ends, when the process is over too.

    Raises
    ------
    TimeoutError
        They do not end until the deadline, or hold the words that `hangs` finds, which the error then has.
    """
    assert process.stdout is not None and process.stderr is not None
    said = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with process.stdout, process.stderr, selectors.DefaultSelector() as streams:
        for stream in said:
            streams.register(stream, selectors.EVENT_READ)
        while streams.get_map():
            ready = streams.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    streams.unregister(key.fd)
                said[key.fd] += chunk
                found = hangs.search(said[key.fd].decode("utf-8", "replace")) if hangs and chunk else None
                if found:
                    raise TimeoutError(f": {found[0].strip()}")
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
    out, err = (text.decode("utf-8", "replace") for text in said.values())
    return out, err


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)


def portions(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """So many at once as a command line holds."""
    for begin in range(0, len(ids), _MANY):
        yield ids[begin : begin + _MANY]
