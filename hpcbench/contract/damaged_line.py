"""A damaged line of a log."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DamagedLine:
    """An incomplete or damaged line of hpcbench. No part of the line is used."""

    line: int
    why: str
