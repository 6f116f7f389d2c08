"""A damaged line of a log."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DamagedLine:
    """A line of hpcbench that is incomplete or damaged. No part of it is used."""

    line: int
    why: str
