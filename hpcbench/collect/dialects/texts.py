"""A log file, line by line."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from hpcbench.collect.dialects.prefix import plain

LONGEST_LINE = 4 << 20
"""Bytes. No framework prints a longer one; what does is a dump of something."""


@dataclass(frozen=True)
class Text:
    """One line of a file."""

    number: int
    """From 1."""
    text: str | None
    """Without colours and line end; None for one that is too long."""
    ended: bool
    """It has a line end."""


def texts(stream: BinaryIO) -> Iterator[Text]:
    """The lines of a file, in memory that one of them needs."""
    number = 0
    while raw := stream.readline(LONGEST_LINE):
        number += 1
        if len(raw) < LONGEST_LINE or raw.endswith(b"\n"):
            yield Text(number, plain(raw.decode("utf-8", "replace").rstrip("\r\n")), raw.endswith(b"\n"))
            continue
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(LONGEST_LINE)
        yield Text(number, None, raw.endswith(b"\n"))
