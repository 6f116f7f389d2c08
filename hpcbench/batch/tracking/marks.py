"""Status files of jobs, which record how they ended."""

import re
from pathlib import Path

from hpcbench.batch.schedulers.flux_answers import decimal
from hpcbench.contract import mark
from hpcbench.contract.mark import Mark
from hpcbench.contract.submission import SchedulerKind


def read_mark(directory: Path) -> Mark | None:
    """Return the content of a directory's status file; None if no file can be read."""
    status = mark.read_mark(directory)
    return status if status and status.readable else None


def scheduler_id(kind: str, mark: Mark) -> str | None:
    """Return the scheduler's id of the job with this status; None if the status does not contain it.

    The status of a local job contains the id of a process, which its queue does not use.
    """
    id = mark.id or ""
    if kind == SchedulerKind.FLUX:
        return decimal(id)
    form = {SchedulerKind.SLURM: r"\d+(_\d+)?", SchedulerKind.LSF: r"\d+(\[\d+\])?"}.get(SchedulerKind(kind))
    return id if form and re.fullmatch(form, id) else None


def count_attempts(root: Path, job: str) -> int:
    """Return the number of attempts that a job has begun."""
    status = read_mark(root / "jobs" / job)
    return 0 if status is None else status.attempt
