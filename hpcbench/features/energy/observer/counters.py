"""Counters of energy that the kernel shows as files: RAPL's by powercap, and those of Cray's nodes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Part = Literal["node", "gpu", "processor"]
"""What a counter is of. A node's holds all that the node takes, its GPUs and processors among it."""
POWERCAP = Path("/sys/class/powercap")
PM_COUNTERS = Path("/sys/cray/pm_counters")


class NoCounterError(Exception):
    """A counter is not there, or cannot be read: the words say why."""


class Counter(Protocol):
    """Joules since some moment in the past."""

    source: str
    """``rapl``, ``cray`` or ``nvml``."""
    name: str
    """Among those of its host."""
    part: Part
    span: float | None
    """Joules after which it begins anew; None where it never does."""
    refresh: float
    """Seconds between two of its changes, about."""

    def read(self) -> float:
        """Return the joules now. Raises NoCounterError."""


@dataclass
class FileCounter:
    """A file with a number."""

    source: str
    name: str
    part: Part
    path: Path
    scale: float
    """Joules of one."""
    span: float | None
    refresh: float

    def read(self) -> float:
        """Return the joules that the counter shows now."""
        found = re.match(r"\s*([0-9]{1,20})\b", read(self.path))
        if not found:
            raise NoCounterError(f"{self.path}: holds no number")
        return int(found[1]) * self.scale


def read(path: Path) -> str:
    """Return what a file of the kernel holds.

    Raises
    ------
    NoCounterError
        It cannot be read.
    """
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise NoCounterError(f"{path}: {error.strerror}") from None


def rapl(root: Path = POWERCAP) -> Iterator[FileCounter]:
    """RAPL's zones of this node: its packages, and their memory where that is counted beside them.

    Zones within a package's (cores, graphics) are part of it, and that of the whole platform holds all others: neither
    is given. The processors' second way to the same counters (``intel-rapl-mmio``) is not, either.

    Raises
    ------
    NoCounterError
        There are none, or they cannot be read.
    """
    found = False
    for zone in sorted(root.glob("intel-rapl:*")) if root.is_dir() else ():
        name = read(zone / "name").strip()
        if not (name.startswith("package-") or name == "dram"):
            continue
        found = True
        if name == "dram":
            name = f"dram of {zone.name.split(':')[1]}"
        highest = FileCounter("rapl", name, "processor", zone / "max_energy_range_uj", 1e-6, None, 1e-3).read()
        counter = FileCounter("rapl", name, "processor", zone / "energy_uj", 1e-6, highest, 1e-3)
        counter.read()
        yield counter
    if not found:
        raise NoCounterError(f"{root}: has no counter of a package")


def cray(root: Path = PM_COUNTERS) -> FileCounter:
    """Return the energy of a whole Cray node.

    Raises
    ------
    NoCounterError
        The file is no counter, or it cannot be read.
    """
    counter = FileCounter("cray", "node", "node", root / "energy", 1.0, None, 0.1)
    counter.read()
    return counter
