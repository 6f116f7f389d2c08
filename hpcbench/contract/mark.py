"""The mark that a job script leaves of a job and of each run: ``status.json``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.contract.values import limit_integer
from hpcbench.files import exists, read_json

FILE = "status.json"
JOB_KEYS = ("state", "exit", "why", "attempt", "start", "end", "host", "hosts", "id")
"""What job scripts write of a job; ``exit`` and ``end`` only of one that has ended."""
RUN_KEYS = ("state", "exit", "limit", "why", "attempt", "start", "end", "host", "job", "id")
"""What job scripts write of a run; ``limit`` of one that met it, ``why`` where something could not be written."""


@dataclass(frozen=True)
class Mark:
    """A job's or a run's ``status.json``."""

    state: str
    """The state: ``running``, ``ended``, or for a job ``requeued``; empty where the file gives none."""
    attempt: int = 1
    exit: int | None = None
    """Exit status; None until there is one."""
    start: str | None = None
    """Time of the start in UTC, ISO 8601."""
    end: str | None = None
    """Time of the end; None before the end."""
    id: str | None = None
    """The scheduler's id of the attempt."""
    host: str | None = None
    """The host that the job script ran on."""
    hosts: tuple[str, ...] | None = None
    """The nodes of the job. Only a job's mark has them."""
    job: str | None = None
    """The job that it belongs to. Only a run's."""
    limit: str | None = None
    """The limit that it met: ``run_limit`` of the study, or its part of the job's ``walltime``. Only a run's."""
    why: str | None = None
    """The file system that took no more, and its word for that."""

    @property
    def readable(self) -> bool:
        """Whether the file gives a state."""
        return bool(self.state)


def parse_mark(data: Any) -> Mark:
    """Read the mark in a JSON value. A field of the wrong kind counts as missing."""
    said: Mapping[str, Any] = data if isinstance(data, dict) else {}

    def text(key: str) -> str | None:
        value = said.get(key)
        return value if isinstance(value, str) else None

    def number(key: str) -> int | None:
        value = said.get(key)
        return limit_integer(value) if type(value) is int else None

    hosts = said.get("hosts")
    return Mark(
        state=text("state") or "",
        exit=number("exit"),
        attempt=number("attempt") or 1,
        start=text("start"),
        end=text("end"),
        host=text("host"),
        hosts=tuple(host for host in hosts if isinstance(host, str)) if isinstance(hosts, list) else None,
        job=text("job"),
        id=text("id"),
        limit=text("limit"),
        why=text("why"),
    )


def read_mark(directory: Path) -> Mark | None:
    """Return the mark in a job's or a run's directory; None where there is none.

    A mark that cannot be read has no state.
    """
    path = directory / FILE
    data = read_json(path)
    if data is not None:
        return parse_mark(data)
    return Mark("") if exists(path) else None


def format_mark(mark: Mark) -> str:
    """Return the text of a mark's file. Fields with the value None are left out."""
    fields = ((key, getattr(mark, key)) for key in (JOB_KEYS if mark.job is None else RUN_KEYS))
    return json.dumps({key: value for key, value in fields if value is not None}) + "\n"


def write_mark(directory: Path, mark: Mark) -> None:
    """Write a mark as a job script does."""
    (directory / FILE).write_text(format_mark(mark), encoding="utf-8")
