"""What was last seen of each job in its queue: schedulers forget, answer late, and contradict themselves."""

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
    """The last that was said of a job."""

    parcel: str
    """Name of the handing-in that it was of."""
    word: JobStatus
    since: float
    """When this state was first seen, in seconds since 1970."""
    absent: float | None = None
    """Since when no answer has named the job."""
    ended: int = 0
    """The attempt whose own mark of its end was there when this was asked for; 0 for none."""

    @property
    def told(self) -> SchedulerAnswer:
        """As the job is judged by it."""
        word = self.word
        return SchedulerAnswer(word.state, word.reason, word.exit, word.restarts, self.since, self.absent, self.ended)


_FINAL = (State.FAILED, State.TIMED_OUT, State.OUT_OF_MEMORY, State.CANCELLED)
"""Ends after which a job runs again only if somebody puts it back into its queue."""
_STALE = 60.0
"""Seconds by which one answer may be older than another that came before it."""


def _began_again(seen: Seen, word: JobStatus) -> bool:
    """Whether a job that had ended runs once more: it was put back into its queue, which nobody may have seen."""
    later = word.start is not None and seen.word.end is not None and word.start >= seen.word.end
    return later or (word.restarts or 0) > (seen.word.restarts or 0) or seen.word.restarts is None is not word.restarts


_SEEN = TypeAdapter(dict[str, Seen])


def advance(seen: Seen | None, parcel: str, word: JobStatus | None, clock: float, ended: int = 0) -> Seen | None:
    """What is known after an answer.

    Parameters
    ----------
    seen
        What was known before.
    parcel
        Name of the job's last handing-in; what was known of another is of the past.
    word
        What the answer says of the job; None where it does not name it.
    clock
        Seconds since 1970.
    ended
        The attempt whose mark says that it had ended before the scheduler was asked.
    """
    if seen is None or seen.parcel != parcel:
        return None if word is None else Seen(parcel, word, clock, ended=ended)
    if word is None:
        return replace(seen, absent=seen.absent if seen.absent is not None else clock, ended=ended)
    if word.state is State.UNKNOWN and seen.word.state is not State.UNKNOWN:
        return replace(seen, absent=None)  # a node that does not answer for a while: the job is where it was
    stale = seen.word.state in _FINAL and word.state in (State.RUNNING, State.SUSPENDED) and clock - seen.since < _STALE
    if stale and not _began_again(seen, word):
        return replace(seen, absent=None)  # an answer that is older than the one before
    return Seen(parcel, word, seen.since if word.state is seen.word.state else clock, ended=ended)


def load(root: Path) -> dict[str, Seen]:
    """What was seen of the jobs of a submission; empty where nothing was, or the file is damaged."""
    try:
        return _SEEN.validate_json((root / "scheduler.json").read_bytes())
    except (OSError, ValidationError):
        return {}


def save(root: Path, seen: Mapping[str, Seen]) -> None:
    """Keep it for the next one who asks, who need not be allowed to write here."""
    try:
        write_json(root / "scheduler.json", {job: asdict(one) for job, one in seen.items()})
    except OSError:
        return
