"""Times in status files and logs, and differences between times in seconds."""

from datetime import datetime, timezone


def format_now() -> str:
    """Return the current time in UTC, such as ``2026-11-21T06:30:00Z``."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> datetime | None:
    """Parse an ISO 8601 time. A time without a time zone is taken as UTC. Return None for any other text."""
    try:
        time = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def measure_seconds(start: str | None, end: str | datetime | None) -> float | None:
    """Return the seconds from `start` to `end`, 0 if the clock was set back, or None if a time is unknown."""
    first, last = parse_time(start), end if isinstance(end, datetime) else parse_time(end)
    return max((last - first).total_seconds(), 0.0) if first and last else None
