"""Times as marks and logs write them, and the seconds between two of them."""

from datetime import datetime, timezone


def format_now() -> str:
    """Return the time in UTC, ``2026-11-21T06:30:00Z``."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(words: str | None) -> datetime | None:
    """Read a time in ISO 8601, as UTC where it names no zone; None for any other text."""
    try:
        found = datetime.fromisoformat((words or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def measure_seconds(start: str | None, end: str | datetime | None) -> float | None:
    """Return the seconds from `start` to `end`; 0 for a clock that went back, None where one of them is not known."""
    first, last = parse_time(start), end if isinstance(end, datetime) else parse_time(end)
    return max((last - first).total_seconds(), 0.0) if first and last else None
