"""A line of a log that is damaged."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DamagedLine:
    """A line that hpcbench began to write and that is not whole. No part of it is used."""

    line: int
    why: str
