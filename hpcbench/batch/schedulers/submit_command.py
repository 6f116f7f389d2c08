"""Submission of a script by a scheduler's program, and the meaning of its answer.

Exit statuses mean little: LSF's program has one for all errors, and Slurm's may fail after the controller has accepted
the job. So the text of the answer decides, and a printed id counts for every exit status.
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
"""Seconds before each further attempt if the scheduler is busy."""


@dataclass(frozen=True)
class SubmitDialect:
    """The answers of a scheduler to a submission."""

    id: "re.Pattern[str]"
    """Line about an accepted job; group 1 is the id."""
    busy: "re.Pattern[str]"
    """Answer of a busy scheduler, which did not accept the job but may do so later."""
    unclear: "re.Pattern[str]"
    """Answer after which the job may have been accepted."""
    remedies: Sequence[tuple["re.Pattern[str]", str | Callable[[], str]]]
    """Remedies by the words of a refusal; the first match counts. A function asks the scheduler for details."""
    refused: "re.Pattern[str] | None" = None
    """Words of a refusal, without which the job may have been accepted. None: every answer without an id refuses."""
    hangs: "re.Pattern[str] | None" = None
    """The daemon does not answer, and the program sends the job repeatedly: each copy may be accepted in the end."""

    def remedy(self, answer: ProgramResult) -> str:
        """Return the remedy for a refusal, after a colon; empty if it is unknown."""
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
        The scheduler may have accepted the job.
    UserError
        The scheduler refused the job.
    """
    left = list(WAITS if waits is None else waits)
    while True:
        try:
            answer = ask(argv, environment, cwd=cwd, hangs=dialect.hangs)
        except SilenceError as error:
            raise UnclearError(f"{error}: it may have accepted the job") from None
        match = dialect.id.search(answer.out) or dialect.id.search(answer.err)
        if match:
            return match[1], answer
        busy = dialect.busy.search(answer.output)
        open_ = dialect.refused is not None and not (busy or dialect.refused.search(answer.output))
        if answer.status == 0 or open_ or _killed(answer) or dialect.unclear.search(answer.output):
            raise UnclearError(f"{program(argv)}: {answer.first_line}: it may have accepted the job")
        if not (left and busy):
            break
        time.sleep(left.pop(0))
    raise UserError(f"{program(argv)} refused the job: {answer.first_line}{dialect.remedy(answer)}")


def _killed(answer: ProgramResult) -> bool:
    """Return whether a signal ended the program, possibly after the submission. A shell reports 128 plus the signal."""
    return answer.status < 0 or answer.status in (128 + signal.SIGHUP, 128 + signal.SIGKILL, 128 + signal.SIGTERM)
