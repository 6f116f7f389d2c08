"""Time stamps that precede each output line of a user's program in a run's log."""

import re

_STAMP = re.compile(rb"\[ *([0-9]{1,9}\.[0-9]{6})\] ")


def format_stamp(seconds: float) -> bytes:
    """Return the stamp of a line that was printed `seconds` after the beginning of the run."""
    return b"[%14.6f] " % seconds


def is_stamped(line: str) -> bool:
    """Return whether a line begins with a stamp."""
    return _STAMP.match(line.encode("utf-8", "replace")) is not None


def strip_stamp(line: bytes) -> tuple[float | None, bytes]:
    """Return the time stamp of a line in seconds, and the text after it. The time is None if the line has no stamp."""
    match = _STAMP.match(line)
    return (float(match[1]), line[match.end() :]) if match else (None, line)
