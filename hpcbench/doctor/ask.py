"""Ask a program, and take no for an answer: it may be missing, fail, or never reply."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

PATIENCE = 10.0
"""Seconds that a client has to answer. One whose daemon is gone retries for minutes by itself."""


@dataclass(frozen=True)
class Answer:
    """What a program said."""

    program: str
    present: bool
    """Whether there is such a program."""
    status: int | None
    """Exit status; None where it did not end in time, or did not start."""
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    """How long it was waited for."""

    @property
    def ok(self) -> bool:
        """Whether it ended with status 0."""
        return self.status == 0

    @property
    def problem(self) -> str:
        """Why there is no answer, in words; empty where there is one."""
        if not self.present:
            return f"{self.program} is not on PATH"
        if self.status is None:
            return self.err or f"{self.program} did not answer within {self.seconds:g} s"
        if self.status:
            said = next((line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()), "")
            how = f"was ended by signal {-self.status}" if self.status < 0 else f"ended with status {self.status}"
            return f"{self.program} {how}{f': {said[:160]}' if said else ''}"
        return ""


def ask(argv: Sequence[str], *, seconds: float | None = None, env: Mapping[str, str] | None = None) -> Answer:
    """Run a program and wait for it, not for ever; what it started ends with it.

    Parameters
    ----------
    argv
        Its name or path, and its arguments.
    seconds
        How long to wait; by default `PATIENCE`.
    env
        Its environment; by default ours, with messages in English.
    """
    name, limit = argv[0].rpartition("/")[2], PATIENCE if seconds is None else seconds
    environment = dict(env) if env is not None else {**os.environ, "LC_ALL": "C"}
    program = shutil.which(argv[0], path=environment.get("PATH"))
    if program is None:
        return Answer(name, False, None)
    try:
        process = subprocess.Popen(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return Answer(name, True, None, err=f"{name} cannot be started: {error.strerror}")
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        out, err = _end(process)
        return Answer(name, True, None, out, seconds=limit)
    return Answer(name, True, process.returncode, out, err)


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Kill it and its children; what it had said so far."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=1.0)
    except subprocess.TimeoutExpired:  # one in a session of its own still holds the pipe
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        return "", ""
