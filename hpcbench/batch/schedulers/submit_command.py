"""Submission of a script by a scheduler's program, and the meaning of its answer.

Exit statuses mean little: LSF's program has one for all errors, and Slurm's may fail after the controller has taken
the job. So the words decide, and an id that was printed counts whatever the status.
"""

import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.schedulers.client import ProgramResult, SilenceError, ask, program
from hpcbench.batch.schedulers.scheduler import UnclearError
from hpcbench.errors import UserError

WAITS = (2.0, 5.0, 15.0)
"""Seconds before each further try where the scheduler says that it is busy."""


@dataclass(frozen=True)
class SubmitDialect:
    """How a scheduler answers a submission."""

    id: "re.Pattern[str]"
    """The line that says the job was taken; group 1 is the id."""
    busy: "re.Pattern[str]"
    """It was not taken, and may be in a while."""
    unclear: "re.Pattern[str]"
    """It may have been taken."""
    remedies: Sequence[tuple["re.Pattern[str]", str | Callable[[], str]]]
    """What to do about a refusal, by its words; the first that fits. A function asks the scheduler for more."""
    refused: "re.Pattern[str] | None" = None
    """Without these words it may have been taken; None where any answer without an id is a refusal."""
    hangs: "re.Pattern[str] | None" = None
    """The daemon does not answer, and the program sends the job repeatedly: each copy may be accepted in the end."""

    def remedy(self, answer: ProgramResult) -> str:
        """Return what to do about a refusal, after a colon; empty where that is unknown."""
        errors = "\n".join(answer.errors)
        remedy = next((remedy for pattern, remedy in self.remedies if pattern.search(errors)), "")
        text = remedy if isinstance(remedy, str) else remedy()
        return f": {text}" if text else ""


def submit_script(
    argv: Sequence[str],
    environment: Mapping[str, str],
    dialect: SubmitDialect,
    *,
    cwd: Path | None = None,
    waits: Sequence[float] | None = None,
) -> tuple[str, ProgramResult]:
    """Submit a script; return the job's id and the answer.

    Raises
    ------
    UnclearError
        It may or may not have been taken.
    UserError
        It was refused.
    """
    left = list(WAITS if waits is None else waits)
    while True:
        try:
            answer = ask(argv, environment, cwd=cwd, hangs=dialect.hangs)
        except SilenceError as error:
            raise UnclearError(f"{error}: it may or may not have taken the job") from None
        match = dialect.id.search(answer.out) or dialect.id.search(answer.err)
        if match:
            return match[1], answer
        busy = dialect.busy.search(answer.output)
        open_ = dialect.refused is not None and not (busy or dialect.refused.search(answer.output))
        if answer.status == 0 or open_ or _killed(answer) or dialect.unclear.search(answer.output):
            raise UnclearError(f"{program(argv)}: {answer.first_line}: it may or may not have taken the job")
        if not (left and busy):
            break
        time.sleep(left.pop(0))
    raise UserError(f"{program(argv)} refused the job: {answer.first_line}{dialect.remedy(answer)}")


def _killed(answer: ProgramResult) -> bool:
    """Whether a signal ended it, perhaps after it had been heard; a shell says so by 128 and the signal."""
    return answer.status < 0 or answer.status in (128 + signal.SIGHUP, 128 + signal.SIGKILL, 128 + signal.SIGTERM)
