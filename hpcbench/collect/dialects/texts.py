"""Lines of a log file."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from hpcbench.collect.dialects.prefix import plain

LONGEST_LINE = 4 << 20
"""Maximum length in bytes of a line that is read. Longer lines occur only in dumps."""


@dataclass(frozen=True)
class Text:
    """A line of a file."""

    number: int
    """Number of the line, from 1."""
    text: str | None
    """Text without color codes or line ending, or None if the line is too long."""
    ended: bool
    """Whether the line has a line ending."""


def texts(stream: BinaryIO) -> Iterator[Text]:
    """Yield the lines of a file. Only one line is in memory at a time."""
    number = 0
    while raw := stream.readline(LONGEST_LINE):
        number += 1
        if len(raw) < LONGEST_LINE or raw.endswith(b"\n"):
            yield Text(number, plain(raw.decode("utf-8", "replace").rstrip("\r\n")), raw.endswith(b"\n"))
            continue
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(LONGEST_LINE)
        yield Text(number, None, raw.endswith(b"\n"))
