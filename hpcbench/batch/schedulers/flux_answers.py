"""Parsers of Flux output: job ids in both formats, and job states."""

import datetime
import re
from collections.abc import Mapping

from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.contract.state import State

FIELDS = ("id.dec", "status", "returncode", "t_run", "t_inactive", "nodelist", "exception.type", "exception.note")
FORMAT = "|".join(f"{{{name}}}" for name in FIELDS)
"""Output format for ``flux jobs``. The note is last because it may contain the separator."""
_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ID = re.compile(rf"[ƒf]([{_DIGITS}]{{2,12}})")
STATES: Mapping[str, State] = {
    "NEW": State.PENDING,
    "DEPEND": State.PENDING,
    "PRIORITY": State.PENDING,
    "SCHED": State.PENDING,
    "PENDING": State.PENDING,
    "RUN": State.RUNNING,
    "RUNNING": State.RUNNING,
    "CLEANUP": State.RUNNING,
    "COMPLETED": State.COMPLETED,
    "FAILED": State.FAILED,
    "CANCELED": State.CANCELLED,
    "CANCELLED": State.CANCELLED,
    "TIMEOUT": State.TIMED_OUT,
}
"""Flux job states and statuses."""
_CAUSES = {
    "node-failure": State.NODE_FAILED,
    "preempt": State.PREEMPTED,
    "cancel": State.CANCELLED,
    "dependency": State.CANCELLED,
}
"""State of a failed job, keyed by exception type."""


def decimal(text: str) -> str | None:
    """Convert a decimal or base58 id (``ƒ`` or ``f`` prefix, Flux RFC 19) to decimal. Return None for other text."""
    if text.isascii() and text.isdigit():
        return text
    match = _ID.fullmatch(text)
    if not match:
        return None
    number = 0
    for digit in match[1]:
        number = 58 * number + _DIGITS.index(digit)
    return str(number) if number < 2**64 else None


def submitted(output: str) -> str | None:
    """Return the decimal id in the output of ``flux batch``. Lines printed by the site are skipped."""
    ids = [id for line in output.splitlines() if (id := decimal(line.strip()))]
    return ids[-1] if ids else None


def named(output: str, name: str) -> Mapping[str, JobStatus]:
    """Return the statuses of jobs with this name, keyed by id. Each line contains id, status, and name."""
    statuses: dict[str, JobStatus] = {}
    for line in output.splitlines():
        text, _, remainder = line.strip().partition("|")
        status, _, shown = remainder.partition("|")
        id = decimal(text)
        if id is not None and shown == name:
            statuses[id] = JobStatus(STATES.get(status.upper(), State.UNKNOWN))
    return statuses


def read_statuses(output: str) -> Mapping[str, JobStatus]:
    """Parse the output of ``flux jobs`` in `FORMAT`. Return statuses keyed by id. Other lines are skipped."""
    statuses: dict[str, JobStatus] = {}
    for line in output.splitlines():
        cells = line.split("|", len(FIELDS) - 1)
        id = decimal(cells[0].strip())
        if id is not None and len(cells) == len(FIELDS):
            statuses[id] = _word(*(cell.strip() for cell in cells[1:]))
    return statuses


def _word(status: str, code: str, start: str, end: str, hosts: str, kind: str, note: str) -> JobStatus:
    state = STATES.get(status.upper(), State.UNKNOWN)
    if state is State.FAILED:
        state = _CAUSES.get(kind, state)
    reason = f"{kind}: {note}" if kind and note else kind or status
    return JobStatus(state, reason, _exit(code, state), _time(start), _time(end), hosts)


def _exit(code: str, state: State) -> int | None:
    """Convert a Flux return code to a shell exit status.

    Flux reports signals as negative numbers, and -128 if the job never ran.
    """
    if state.alive or not re.fullmatch(r"-?\d+", code) or code == "-128":
        return None
    return int(code) if int(code) >= 0 else 128 - int(code)


def _time(text: str) -> str | None:
    if not re.fullmatch(r"\d+(\.\d*)?", text) or float(text) == 0:
        return None
    return datetime.datetime.fromtimestamp(int(float(text)), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
