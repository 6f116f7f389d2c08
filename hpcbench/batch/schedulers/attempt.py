"""Calls to programs that may be missing, fail, or hang. Outcomes are returned as values, never raised."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcbench.batch.schedulers import client
from hpcbench.batch.schedulers.clean_environment import plain_environment
from hpcbench.errors import UserError

PATIENCE = 10.0
"""Default deadline in seconds. Clients retry for minutes if their daemon is down."""


@dataclass(frozen=True)
class CommandOutcome:
    """Outcome of a program call."""

    program: str
    present: bool
    """Whether the program is on PATH."""
    status: int | None
    """Exit status, or None if the program did not start or exceeded the deadline."""
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    """Deadline in seconds if the program exceeded it, or 0 if the program ended in time."""

    @property
    def ok(self) -> bool:
        """Whether the program exited with status 0."""
        return self.status == 0

    @property
    def hung(self) -> bool:
        """Whether the program exists but had to be killed at the deadline."""
        return self.present and self.status is None

    @property
    def problem(self) -> str:
        """Human-readable reason for a failure. It is empty on success."""
        if not self.present:
            return f"{self.program} is not on PATH"
        if self.status is None:
            return self.err or f"{self.program} did not answer within {self.seconds:g} s"
        if self.status:
            line = next((text.strip() for text in (self.err + "\n" + self.out).splitlines() if text.strip()), "")
            how = f"was ended by signal {-self.status}" if self.status < 0 else f"ended with status {self.status}"
            return f"{self.program} {how}{f': {line[:160]}' if line else ''}"
        return ""


def attempt(
    argv: Sequence[str], *, seconds: float | None = None, env: Mapping[str, str] | None = None
) -> CommandOutcome:
    """Run a program. If it exceeds the deadline, kill it and its child processes.

    Parameters
    ----------
    seconds
        Deadline in seconds. The default is `PATIENCE`.
    env
        Environment variables. The default is the environment of this process, with English messages.
    """
    name, limit = argv[0].rpartition("/")[2], PATIENCE if seconds is None else seconds
    environment = dict(env) if env is not None else {**os.environ, "LC_ALL": "C"}
    program = shutil.which(argv[0], path=environment.get("PATH"))
    if program is None:
        return CommandOutcome(name, False, None)
    try:
        answer = client.ask([program, *argv[1:]], environment, patience=limit)
    except client.SilenceError as silence:
        return CommandOutcome(name, True, None, silence.out, seconds=limit)
    except UserError as error:
        return CommandOutcome(name, True, None, err=str(error))
    return CommandOutcome(name, True, answer.status, answer.out, answer.err)


def ask_scheduler(argv: Sequence[str], *, seconds: float | None = None) -> CommandOutcome:
    """Run a scheduler command with `attempt`. Variables of an enclosing job are removed, except ``FLUX_URI``."""
    return attempt(argv, seconds=seconds, env=plain_environment(keep=("FLUX_URI",)))
