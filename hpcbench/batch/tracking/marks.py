"""The marks of jobs: the truth about how they ended."""

import re
from pathlib import Path

from hpcbench.batch.schedulers.flux_answers import decimal
from hpcbench.contract import mark
from hpcbench.contract.mark import Mark
from hpcbench.contract.submission import SchedulerKind


def read_mark(directory: Path) -> Mark | None:
    """The mark in the directory; None where there is none that can be read."""
    found = mark.read_mark(directory)
    return found if found and found.readable else None


def scheduler_id(kind: str, mark: Mark) -> str | None:
    """By which id the scheduler knows the job that left the mark; None where the mark does not tell it.

    A local job's mark has the id of a process, which its queue does not ask for.
    """
    id = mark.id or ""
    if kind == SchedulerKind.FLUX:
        return decimal(id)
    form = {SchedulerKind.SLURM: r"\d+(_\d+)?", SchedulerKind.LSF: r"\d+(\[\d+\])?"}.get(SchedulerKind(kind))
    return id if form and re.fullmatch(form, id) else None


def attempts_begun(root: Path, job: str) -> int:
    """How often the job has begun."""
    found = read_mark(root / "jobs" / job)
    return 0 if found is None else found.attempt
