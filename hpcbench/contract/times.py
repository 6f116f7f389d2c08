"""Moments as marks and logs write them, and the time between two."""

from datetime import datetime, timezone


def moment(words: str | None) -> datetime | None:
    """A time in ISO 8601, UTC where it says no zone; None for anything else."""
    try:
        found = datetime.fromisoformat((words or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def elapsed(start: str | None, end: str | datetime | None) -> float | None:
    """Seconds from `start` to `end`, 0 for a clock that went back; None where either is not known."""
    first, last = moment(start), end if isinstance(end, datetime) else moment(end)
    return max((last - first).total_seconds(), 0.0) if first and last else None
