"""Submission of a script with a scheduler command, and interpretation of the response.

Exit statuses are unreliable. bsub uses a single status for all errors, and sbatch may fail after the controller has
accepted the job. The result is therefore determined from the output: a printed id means success, regardless of the exit
status.
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
"""Delay in seconds before each retry if the scheduler is busy."""


@dataclass(frozen=True)
class SubmitDialect:
    """Patterns of a scheduler's responses to a submission."""

    id: "re.Pattern[str]"
    """Line that reports an accepted job. Group 1 is the id."""
    busy: "re.Pattern[str]"
    """Response of a busy scheduler, which did not accept the job but may accept it later."""
    unclear: "re.Pattern[str]"
    """Response that does not show whether the job was accepted."""
    remedies: Sequence[tuple["re.Pattern[str]", str | Callable[[], str]]]
    """Patterns of refusals, with remedies.

    The first match is used. A remedy may be a function that queries the scheduler for details.
    """
    refused: "re.Pattern[str] | None" = None
    """Pattern of refusals.

    If the pattern does not match, the job may have been accepted. If None, every response without an id is a refusal.
    """
    hangs: "re.Pattern[str] | None" = None
    """Message saying that the daemon does not respond.

    The command keeps resending the job, and any copy may be accepted.
    """

    def remedy(self, answer: ProgramResult) -> str:
        """Return the remedy for a refusal, preceded by a colon, or an empty string if no remedy is known."""
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
) -> tuple[str, ProgramResult]:
    """Submit a script. Return the job id and the response.

    Raises
    ------
    UnclearError
        The scheduler may have accepted the job.
    UserError
        The scheduler refused the job.
    """
    left = list(WAITS)
    while True:
        try:
            answer = ask(argv, environment, cwd=cwd, hangs=dialect.hangs)
        except SilenceError as error:
            raise UnclearError(f"{error}: the scheduler may have accepted the job") from None
        match = dialect.id.search(answer.out) or dialect.id.search(answer.err)
        if match:
            return match[1], answer
        busy = dialect.busy.search(answer.output)
        open_ = dialect.refused is not None and not (busy or dialect.refused.search(answer.output))
        if answer.status == 0 or open_ or _killed(answer) or dialect.unclear.search(answer.output):
            raise UnclearError(f"{program(argv)}: {answer.first_line}: the scheduler may have accepted the job")
        if not (left and busy):
            break
        time.sleep(left.pop(0))
    raise UserError(f"{program(argv)} refused the job: {answer.first_line}{dialect.remedy(answer)}")


def _killed(answer: ProgramResult) -> bool:
    """Return whether a signal ended the command, possibly after the submission.

    Shells report 128 plus the signal number.
    """
    return answer.status < 0 or answer.status in (128 + signal.SIGHUP, 128 + signal.SIGKILL, 128 + signal.SIGTERM)
