"""Job status files, which record how jobs ended."""

import re
from pathlib import Path

from hpcbench.batch.schedulers.flux_answers import decimal
from hpcbench.contract import mark
from hpcbench.contract.mark import Mark
from hpcbench.contract.submission import SchedulerKind


def read_mark(directory: Path) -> Mark | None:
    """Return the content of a directory's status file, or None if it is not readable."""
    status = mark.read_mark(directory)
    return status if status and status.readable else None


def scheduler_id(kind: str, mark: Mark) -> str | None:
    """Return the scheduler id in a job status, or None if it is missing.

    The status of a local job contains a process id, which the local queue does not use.
    """
    id = mark.id or ""
    if kind == SchedulerKind.FLUX:
        return decimal(id)
    form = {SchedulerKind.SLURM: r"\d+(_\d+)?", SchedulerKind.LSF: r"\d+(\[\d+\])?"}.get(SchedulerKind(kind))
    return id if form and re.fullmatch(form, id) else None


def count_attempts(root: Path, job: str) -> int:
    """Return the number of started attempts of a job."""
    status = read_mark(root / "jobs" / job)
    return 0 if status is None else status.attempt
