"""The mark that a job script leaves of a job and of each run: ``status.json``."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mark:
    """A job's or a run's ``status.json``."""

    state: str
    """``running``, ``ended``, or of a job ``requeued``; empty where the file does not say."""
    attempt: int = 1
    exit: int | None = None
    start: str | None = None
    end: str | None = None
    id: str | None = None
    """By which the scheduler knew the attempt."""


def parse_mark(data: Any) -> Mark:
    """The mark in a JSON value; a field that is not what it should be counts as missing."""
    fields = data if isinstance(data, dict) else {}

    def text(key: str) -> str | None:
        value = fields.get(key)
        return value if isinstance(value, str) else None

    def number(key: str) -> int | None:
        value = fields.get(key)
        return value if type(value) is int else None

    return Mark(text("state") or "", number("attempt") or 1, number("exit"), text("start"), text("end"), text("id"))
