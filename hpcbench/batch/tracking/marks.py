"""The marks that job scripts leave: the truth about how jobs and runs ended."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.batch.files import read_json


@dataclass(frozen=True)
class Mark:
    """A job's or a run's ``status.json``."""

    state: str
    """``running``, ``ended``, or of a job ``requeued``; empty where the file does not say."""
    attempt: int
    exit: int | None = None
    start: str | None = None
    end: str | None = None
    id: str | None = None
    """By which the scheduler knew the attempt."""


def read_mark(directory: Path) -> Mark | None:
    """The mark in the directory; None where there is none that can be read."""
    data = read_json(directory / "status.json")
    if data is None:
        return None
    return Mark(
        _text(data, "state") or "",
        _number(data, "attempt") or 1,
        _number(data, "exit"),
        _text(data, "start"),
        _text(data, "end"),
        _text(data, "id"),
    )


def attempts_begun(root: Path, job: str) -> int:
    """How often the job has begun."""
    mark = read_mark(root / "jobs" / job)
    return 0 if mark is None else mark.attempt


def _text(data: dict[str, Any], key: str) -> str | None:
    value = data.get(key)
    return value if isinstance(value, str) else None


def _number(data: dict[str, Any], key: str) -> int | None:
    value = data.get(key)
    return value if type(value) is int else None
