"""The seconds before each line that a program of others has printed, in the log of its run."""

import re

_STAMP = re.compile(rb"\[ *([0-9]{1,9}\.[0-9]{6})\] ")


def stamp(seconds: float) -> bytes:
    """Return the text before a line that came so many seconds after the beginning."""
    return b"[%14.6f] " % seconds


def is_stamped(line: str) -> bool:
    """Return whether a line begins with a stamp."""
    return _STAMP.match(line.encode("utf-8", "replace")) is not None


def strip_stamp(line: bytes) -> tuple[float | None, bytes]:
    """Return the seconds before a line, and the line; None if it has none."""
    found = _STAMP.match(line)
    return (float(found[1]), line[found.end() :]) if found else (None, line)
