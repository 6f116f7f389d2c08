"""Calls to external programs, with a deadline. Nonzero exit statuses are returned, not raised."""

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
"""Default deadline in seconds. Slurm clients give up after 20 to 60 s if the controller does not respond."""

_MANY = 200


class SilenceError(UserError):
    """A program exceeded its deadline, or reported that its daemon does not respond."""

    out: str = ""
    """Standard output of the program before it was killed."""


@dataclass(frozen=True)
class ProgramResult:
    """Exit status and output of a program."""

    argv: Sequence[str]
    status: int
    out: str
    err: str

    @property
    def output(self) -> str:
        """Standard output and standard error, joined for messages."""
        return "\n".join(part for part in (self.out.strip(), self.err.strip()) if part)

    @property
    def errors(self) -> list[str]:
        """Lines that state the error: lines numbered by LSF filters, or lines with "error", or all lines."""
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        numbered = [line for line in lines if self.status and re.match(r"\d+: \S", line)]
        return numbered[-1:] or [line for line in lines if "error" in line.lower()] or lines

    @property
    def first_line(self) -> str:
        """First error line, followed by the last error line if it differs."""
        lines = self.errors or [f"no output, exit status {self.status}"]
        last = lines[-1] if "error" in lines[-1].lower() else lines[0]
        return "; ".join(dict.fromkeys((lines[0], last)))


def program(argv: Sequence[str]) -> str:
    """Return the name of the called program.

    If the command is a shell that only redirects stdin, the name is the fourth argument.
    """
    return argv[3] if argv[0] == "bash" else argv[0]


def ask(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    patience: float | None = None,
    cwd: Path | None = None,
    hangs: "re.Pattern[str] | None" = None,
) -> ProgramResult:
    """Run a program and return its result.

    The program runs in its own process group. On timeout, the whole group is killed, including site wrappers.

    Parameters
    ----------
    patience
        Deadline in seconds. The default is `PATIENCE`.
    hangs
        Pattern of output that means "the daemon does not respond, still trying". On a match, the program is killed.

    Raises
    ------
    SilenceError
        The program exceeded the deadline, or its output matched `hangs`.
    UserError
        The program does not exist.
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
        raise UserError(
            f"{argv[0]}: cannot be run ({error.strerror}): run this command on a login node of the machine"
        ) from None
    output, errors = bytearray(), bytearray()
    try:
        _listen(process, (output, errors), time.monotonic() + patience, hangs)
    except TimeoutError as error:
        _end(process)
        silence = SilenceError(f"{program(argv)}{str(error) or f' did not answer within {patience:.0f} s'}")
        silence.out = output.decode("utf-8", "replace")
        raise silence from None
    except BaseException:
        _end(process)
        raise
    return ProgramResult(
        tuple(argv), process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
    )


def _listen(
    process: "subprocess.Popen[bytes]",
    buffers: tuple[bytearray, bytearray],
    deadline: float,
    hangs: "re.Pattern[str] | None",
) -> None:
    """Append stdout and stderr to `buffers` until both are closed and the process has ended.

    Raises
    ------
    TimeoutError
        The process exceeded the deadline, or its output matched `hangs`. In the latter case, the error quotes the
        match.
    """
    assert process.stdout is not None and process.stderr is not None
    printed = dict(zip((process.stdout.fileno(), process.stderr.fileno()), buffers, strict=True))
    with process.stdout, process.stderr, selectors.DefaultSelector() as streams:
        for stream in printed:
            streams.register(stream, selectors.EVENT_READ)
        while streams.get_map():
            ready = streams.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    streams.unregister(key.fd)
                printed[key.fd].extend(chunk)
                match = hangs.search(printed[key.fd].decode("utf-8", "replace")) if hangs and chunk else None
                if match:
                    raise TimeoutError(f": {match[0].strip()}")
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)


def portions(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in chunks that fit on a command line."""
    for begin in range(0, len(ids), _MANY):
        yield ids[begin : begin + _MANY]
