"""Calls of programs that may be missing, fail or hang: each outcome is a value, never an exception."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcbench.batch.schedulers import client
from hpcbench.batch.schedulers.clean_environment import plain_environment
from hpcbench.errors import UserError

PATIENCE = 10.0
"""Deadline of a program in seconds. A client whose daemon is down retries for minutes."""


@dataclass(frozen=True)
class CommandOutcome:
    """Outcome of a program call."""

    program: str
    present: bool
    """Whether the program is on PATH."""
    status: int | None
    """Exit status; None if the program did not start, or did not end before the deadline."""
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    """Deadline that passed, in seconds; 0 if the program ended."""

    @property
    def ok(self) -> bool:
        """Whether the program ended with status 0."""
        return self.status == 0

    @property
    def hung(self) -> bool:
        """Whether the program exists and gave no exit status."""
        return self.present and self.status is None

    @property
    def problem(self) -> str:
        """Why the call failed, for people; empty if it succeeded."""
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
    """Run a program until its deadline; then kill it with its child processes.

    Parameters
    ----------
    argv
        Name or path of the program, and its arguments.
    seconds
        Deadline in seconds; `PATIENCE` by default.
    env
        Environment variables; those of this process with English messages by default.
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
    """Run a scheduler's program as `attempt` does, without the variables of an outer job except ``FLUX_URI``."""
    return attempt(argv, seconds=seconds, env=plain_environment(keep=("FLUX_URI",)))
