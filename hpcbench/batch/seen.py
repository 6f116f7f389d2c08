"""What was last seen of each job in its queue: schedulers forget, answer late, and contradict themselves."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hpcbench.batch.files import read_json, write_json
from hpcbench.batch.states import State, Word

GRACE = 300.0
"""Seconds for which a job may be missing from every answer: accounting lags, and requeued jobs are nowhere at first."""
_MAY_RETURN = (State.PREEMPTED, State.NODE_FAILED, State.LOST, State.UNKNOWN)
"""Ends that schedulers take back when they start the job again."""


@dataclass(frozen=True)
class Seen:
    """The last that was said of a job."""

    parcel: str
    """Name of the handing-in that it was of."""
    word: Word
    since: float
    """When this state was first seen, in seconds since 1970."""
    absent: float | None = None
    """Since when no answer has named the job."""

    @property
    def final(self) -> bool:
        """Whether nothing but another start of the job can change it."""
        return not self.word.state.alive and self.word.state not in _MAY_RETURN


def advance(seen: Seen | None, parcel: str, word: Word | None, clock: float) -> Seen | None:
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
    """
    if seen is None or seen.parcel != parcel:
        return None if word is None else Seen(parcel, word, clock)
    if word is None:
        return replace(seen, absent=seen.absent if seen.absent is not None else clock)
    if word.state is State.UNKNOWN and seen.word.state is not State.UNKNOWN:
        return replace(seen, absent=None)  # a node that does not answer for a while: the job is where it was
    started_again = (word.restarts or 0) > (seen.word.restarts or 0)
    if seen.final and word.state.alive and not started_again:
        return seen  # an answer of the past: accounting lags behind the queue
    return Seen(parcel, word, seen.since if word.state is seen.word.state else clock)


def load(root: Path) -> dict[str, Seen]:
    """What was seen of the jobs of a submission; empty where nothing was, or the file is damaged."""
    try:
        return {job: _read(data) for job, data in (read_json(root / "scheduler.json") or {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def save(root: Path, seen: Mapping[str, Seen]) -> None:
    """Keep it for the next one who asks, who need not be allowed to write here."""
    try:
        write_json(root / "scheduler.json", {job: asdict(one) for job, one in seen.items()})
    except OSError:
        return


def _read(data: dict[str, Any]) -> Seen:
    word = Word(**{**data["word"], "state": State(data["word"]["state"])})
    return Seen(data["parcel"], word, data["since"], data["absent"])
