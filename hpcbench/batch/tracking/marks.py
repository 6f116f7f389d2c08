"""The marks that job scripts leave: the truth about how jobs and runs ended."""

from pathlib import Path

from hpcbench.batch.files import exists, read_json
from hpcbench.contract.mark import Mark, parse_mark


def read_mark(directory: Path) -> Mark | None:
    """The mark in the directory; None where there is none that can be read."""
    data = read_json(directory / "status.json")
    return None if data is None else parse_mark(data)


def read_run_mark(directory: Path) -> Mark | None:
    """A run's mark; one without a state where the file cannot be read, None where there is none."""
    mark = read_mark(directory)
    return Mark("") if mark is None and exists(directory / "status.json") else mark


def attempts_begun(root: Path, job: str) -> int:
    """How often the job has begun."""
    mark = read_mark(root / "jobs" / job)
    return 0 if mark is None else mark.attempt
