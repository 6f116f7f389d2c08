"""The status file ``status.json`` that a job script writes for a job and for each run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.contract.values import get_integer, get_member, get_text
from hpcbench.files import exists, read_json

FILE = "status.json"
JOB_KEYS = ("state", "exit", "why", "attempt", "start", "end", "host", "hosts", "id")
"""Keys in a job's status file. ``exit`` and ``end`` are added when the job has ended."""
RUN_KEYS = ("state", "exit", "limit", "why", "attempt", "start", "end", "host", "job", "id")
"""Keys in a run's status file.

``limit`` is present if the run reached a limit, and ``why`` is present after a write error.
"""


@dataclass(frozen=True)
class Mark:
    """The content of a status file."""

    state: str
    """``running``, ``ended``, or (only jobs) ``requeued``. The text is empty if the file contains no state."""
    attempt: int = 1
    exit: int | None = None
    """Exit status, or None if the job or run has not ended."""
    start: str | None = None
    """Start time in UTC, ISO 8601."""
    end: str | None = None
    """End time, or None if the job or run has not ended."""
    id: str | None = None
    """Scheduler ID of the attempt."""
    host: str | None = None
    """Host of the job script."""
    hosts: tuple[str, ...] | None = None
    """Nodes of the job (only in status files of jobs)."""
    job: str | None = None
    """Job of the run (only in status files of runs)."""
    limit: str | None = None
    """Limit that the run reached: the study's ``run_limit``, or its part of the job's ``walltime``."""
    why: str | None = None
    """Directory in which a file could not be written, and the file-system error."""

    @property
    def readable(self) -> bool:
        """Whether the file contains a state."""
        return bool(self.state)


def parse_mark(data: Any) -> Mark:
    """Parse the JSON value of a status file. Fields with a wrong type count as missing."""
    hosts = get_member(data, "hosts")
    return Mark(
        state=get_text(data, "state") or "",
        exit=get_integer(data, "exit"),
        attempt=get_integer(data, "attempt") or 1,
        start=get_text(data, "start"),
        end=get_text(data, "end"),
        host=get_text(data, "host"),
        hosts=tuple(host for host in hosts if isinstance(host, str)) if isinstance(hosts, list) else None,
        job=get_text(data, "job"),
        id=get_text(data, "id"),
        limit=get_text(data, "limit"),
        why=get_text(data, "why"),
    )


def read_mark(directory: Path) -> Mark | None:
    """Read the status file in the directory of a job or a run, or return None if it is missing.

    If the file cannot be read, the state is empty.
    """
    path = directory / FILE
    data = read_json(path)
    if data is not None:
        return parse_mark(data)
    return Mark("") if exists(path) else None


def format_mark(mark: Mark) -> str:
    """Format a status file. Fields with the value None are omitted."""
    fields = ((key, getattr(mark, key)) for key in (JOB_KEYS if mark.job is None else RUN_KEYS))
    return json.dumps({key: value for key, value in fields if value is not None}) + "\n"
