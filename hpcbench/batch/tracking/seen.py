"""Last known status of each job. Schedulers forget jobs, respond late, and contradict themselves."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from hpcbench.batch.files import write_json
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.contract.job_state import SchedulerAnswer
from hpcbench.contract.state import State


@dataclass(frozen=True)
class Seen:
    """Last status of a job reported by the scheduler."""

    parcel: str
    """Queue name of the submission to which the status belongs."""
    word: JobStatus
    since: float
    """Time of the first response with this state, in seconds since 1970."""
    absent: float | None = None
    """Time of the first response without the job, in seconds since 1970. None if the last response contains the job."""
    ended: int = 0
    """Number of the attempt whose end had been recorded in a status file before this response, or 0."""

    @property
    def told(self) -> SchedulerAnswer:
        """Scheduler response used to resolve the job state."""
        word = self.word
        return SchedulerAnswer(word.state, word.reason, word.exit, word.restarts, self.since, self.absent, self.ended)


_FINAL = (State.FAILED, State.TIMED_OUT, State.OUT_OF_MEMORY, State.CANCELLED)
"""States after which a job restarts only if a user requeues it."""
_STALE = 60.0
"""Seconds after a final state during which a response that reports the job as running is considered outdated."""


def _began_again(seen: Seen, word: JobStatus) -> bool:
    """Return whether an ended job was requeued, possibly between two responses."""
    later = word.start is not None and seen.word.end is not None and word.start >= seen.word.end
    return later or (word.restarts or 0) > (seen.word.restarts or 0) or seen.word.restarts is None is not word.restarts


_SEEN = TypeAdapter(dict[str, Seen])


def advance(seen: Seen | None, name: str, word: JobStatus | None, clock: float, ended: int = 0) -> Seen | None:
    """Update the last status of a job with a scheduler response.

    Parameters
    ----------
    seen
        Last status before the response.
    name
        Queue name of the job's last submission. Statuses of earlier submissions are ignored.
    word
        Status of the job in the response, or None if the response does not contain the job.
    clock
        Current time in seconds since 1970.
    ended
        Number of the attempt whose end was recorded in a status file before the query, or 0.
    """
    if seen is None or seen.parcel != name:
        return None if word is None else Seen(name, word, clock, ended=ended)
    if word is None:
        return replace(seen, absent=seen.absent if seen.absent is not None else clock, ended=ended)
    if word.state is State.UNKNOWN and seen.word.state is not State.UNKNOWN:
        return replace(seen, absent=None)  # A node is temporarily unresponsive. The job keeps its state.
    stale = seen.word.state in _FINAL and word.state in (State.RUNNING, State.SUSPENDED) and clock - seen.since < _STALE
    if stale and not _began_again(seen, word):
        return replace(seen, absent=None)  # the response is older than the previous response
    return Seen(name, word, seen.since if word.state is seen.word.state else clock, ended=ended)


def load(root: Path) -> dict[str, Seen]:
    """Load the last status of each job of a submission. Return an empty dict if the file is missing or damaged."""
    try:
        return _SEEN.validate_json((root / "scheduler.json").read_bytes())
    except (OSError, ValidationError):
        return {}


def save(root: Path, seen: Mapping[str, Seen]) -> None:
    """Store the last status of each job, if this user has write permission."""
    try:
        write_json(root / "scheduler.json", {job: asdict(status) for job, status in seen.items()})
    except OSError:
        return
