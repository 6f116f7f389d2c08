"""A line of a log that is damaged."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """A line of ours that is not whole; nothing of it is used."""

    line: int
    why: str
