"""Checks before submission to Slurm: acceptance and start time of each job, and the limit on the number of jobs."""

import getpass
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.batch.batch_job import BatchJob
from hpcbench.batch.schedulers.accounts import list_associations
from hpcbench.batch.schedulers.attempt import ask_scheduler
from hpcbench.batch.schedulers.clean_environment import clean_environment
from hpcbench.batch.schedulers.client import ProgramResult, ask
from hpcbench.batch.schedulers.submit_command import SubmitDialect
from hpcbench.errors import UserError

PATIENCE = 30.0
"""Deadline of each call in seconds. Without the check, the same error would be reported later."""
MOST = 8
"""Maximum number of distinct job headers to check. The jobs of a study differ little."""
_START = re.compile(r"Job \d+ to start at (\S+) using \d+ processors? on nodes? (\S+)(?: in partition (\S+))?")
_OWN = re.compile(r"#SBATCH (?:--job-name|--output|--error|-J|-o|-e)\b")


def preflight(root: Path, jobs: Sequence[BatchJob], account: str | None, dialect: SubmitDialect) -> Iterator[str]:
    """Check the jobs of a submission on disk with Slurm. Yield lines for the user.

    Raises
    ------
    UserError
        Slurm would refuse a job, or the number of jobs exceeds the user's limit.
    """
    kinds: dict[tuple[str, ...], BatchJob] = {}
    for job in jobs:
        kinds.setdefault(_head(root / job.script), job)
    for job in list(kinds.values())[:MOST]:
        yield from _would_take(root, job, dialect)
    yield from _room(sum(len(job.jobs) for job in jobs), account)


def _head(script: Path) -> tuple[str, ...]:
    """Return the directives of a script, except those that differ between jobs."""
    lines = script.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line.startswith("#SBATCH ") and not _OWN.match(line))


def _would_take(root: Path, job: BatchJob, dialect: SubmitDialect) -> Iterator[str]:
    argv = ["sbatch", "--test-only", str(root / job.script)]
    try:
        answer = ask(argv, clean_environment(), patience=PATIENCE, cwd=root)
    except UserError as error:
        yield f"could not check whether Slurm accepts the jobs: {error}"
        return
    match = _START.search(answer.output)
    if answer.status == 0 and match:
        where = f" in {match[3]}" if match[3] else ""
        yield f"if submitted now, {job.name} would start at {match[1]} on {match[2]}{where}"
    elif answer.status and not _unsure(answer, dialect):
        raise UserError(
            f"sbatch --test-only: Slurm would refuse {job.name}: {answer.first_line}{dialect.remedy(answer)}"
        )


def _unsure(answer: ProgramResult, dialect: SubmitDialect) -> bool:
    """Return whether the check was inconclusive because Slurm is busy, unresponsive, or too old for the query."""
    return bool(
        dialect.busy.search(answer.output)
        or dialect.unclear.search(answer.output)
        or re.search(r"Unable to contact|unrecognized option|[Ii]nvalid option", answer.output)
    )


def _room(number: int, account: str | None) -> Iterator[str]:
    """Check the number of jobs against the limits in the user's associations."""
    rows, _ = list_associations(seconds=PATIENCE)
    accounts = list(dict.fromkeys(row.account for row in rows))
    if account is not None and accounts and account not in accounts:
        raise UserError(
            f"account {account} is not among your accounts on this machine (sacctmgr show assoc lists "
            f"{', '.join(accounts)}): set `account` in the study to one of them"
        )
    charged = [row for row in rows if account is None or row.account == account]
    bounds = [int(row.max_submit) for row in charged if row.max_submit.isdecimal()]
    if not bounds:
        return
    waiting = _waiting()
    if waiting is None:
        return
    most = max(bounds)
    if waiting + number > most:
        raise UserError(
            f"{number} jobs: Slurm accepts at most {most} of your jobs at a time (sacctmgr show "
            f"assoc: MaxSubmit), and {waiting} are "
            "in the queue: submit them in parts with --only, or wait"
        )
    yield f"Slurm accepts at most {most} of your jobs at a time ({waiting} in the queue now)"


def _waiting() -> int | None:
    argv = ["squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%i"]
    answer = ask_scheduler(argv, seconds=PATIENCE)
    return len(answer.out.split()) if answer.ok else None
