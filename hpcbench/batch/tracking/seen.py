"""Last status of each job in its queue, because schedulers forget jobs, answer late, and contradict themselves."""

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
    """The scheduler's last status of a job."""

    parcel: str
    """Name in the queue of the submission to which the status belongs."""
    word: JobStatus
    since: float
    """Time of the first answer with this state, in seconds since 1970."""
    absent: float | None = None
    """Time of the first answer without the job, in seconds since 1970; None if the last answer contained it."""
    ended: int = 0
    """The attempt whose status file recorded its end before this answer; 0 for none."""

    @property
    def told(self) -> SchedulerAnswer:
        """The answer from which the state of the job is resolved."""
        word = self.word
        return SchedulerAnswer(word.state, word.reason, word.exit, word.restarts, self.since, self.absent, self.ended)


_FINAL = (State.FAILED, State.TIMED_OUT, State.OUT_OF_MEMORY, State.CANCELLED)
"""States after which a job runs again only if a user requeues it."""
_STALE = 60.0
"""Maximum seconds that an answer may be older than an earlier answer."""


def _began_again(seen: Seen, word: JobStatus) -> bool:
    """Return whether an ended job runs again because it was requeued, perhaps between two answers."""
    later = word.start is not None and seen.word.end is not None and word.start >= seen.word.end
    return later or (word.restarts or 0) > (seen.word.restarts or 0) or seen.word.restarts is None is not word.restarts


_SEEN = TypeAdapter(dict[str, Seen])


def advance(seen: Seen | None, name: str, word: JobStatus | None, clock: float, ended: int = 0) -> Seen | None:
    """Return the last status of a job after an answer of the scheduler.

    Parameters
    ----------
    seen
        Its last status before the answer.
    name
        Name in the queue of the job's last submission. A status of an earlier submission does not count.
    word
        Status of the job in the answer; None if the answer does not contain it.
    clock
        Seconds since 1970.
    ended
        The attempt whose status file recorded its end before the scheduler was asked; 0 for none.
    """
    if seen is None or seen.parcel != name:
        return None if word is None else Seen(name, word, clock, ended=ended)
    if word is None:
        return replace(seen, absent=seen.absent if seen.absent is not None else clock, ended=ended)
    if word.state is State.UNKNOWN and seen.word.state is not State.UNKNOWN:
        return replace(seen, absent=None)  # a node that does not answer for a while: the job keeps its state
    stale = seen.word.state in _FINAL and word.state in (State.RUNNING, State.SUSPENDED) and clock - seen.since < _STALE
    if stale and not _began_again(seen, word):
        return replace(seen, absent=None)  # an answer that is older than the previous one
    return Seen(name, word, seen.since if word.state is seen.word.state else clock, ended=ended)


def load(root: Path) -> dict[str, Seen]:
    """Return the last status of each job of a submission; nothing if the file is missing or damaged."""
    try:
        return _SEEN.validate_json((root / "scheduler.json").read_bytes())
    except (OSError, ValidationError):
        return {}


def save(root: Path, seen: Mapping[str, Seen]) -> None:
    """Store the last status of each job, if this user may write here."""
    try:
        write_json(root / "scheduler.json", {job: asdict(status) for job, status in seen.items()})
    except OSError:
        return
