"""The marks of jobs: the truth about how they ended."""

from pathlib import Path

from hpcbench.contract import mark
from hpcbench.contract.mark import Mark


def read_mark(directory: Path) -> Mark | None:
    """The mark in the directory; None where there is none that can be read."""
    found = mark.read_mark(directory)
    return found if found and found.readable else None


def attempts_begun(root: Path, job: str) -> int:
    """How often the job has begun."""
    found = read_mark(root / "jobs" / job)
    return 0 if found is None else found.attempt
