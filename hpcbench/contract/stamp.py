"""Time stamps that a run's log has before each line of a user's program."""

import re

_STAMP = re.compile(rb"\[ *([0-9]{1,9}\.[0-9]{6})\] ")


def format_stamp(seconds: float) -> bytes:
    """Return the stamp of a line that was printed `seconds` after the beginning of the run."""
    return b"[%14.6f] " % seconds


def is_stamped(line: str) -> bool:
    """Return whether a line begins with a stamp."""
    return _STAMP.match(line.encode("utf-8", "replace")) is not None


def strip_stamp(line: bytes) -> tuple[float | None, bytes]:
    """Split a line into the seconds of its stamp and the text. The seconds are None if it has no stamp."""
    match = _STAMP.match(line)
    return (float(match[1]), line[match.end() :]) if match else (None, line)
