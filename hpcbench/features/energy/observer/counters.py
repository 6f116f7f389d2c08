"""Energy counters that the kernel exposes as files: RAPL (through powercap) and Cray node counters."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Part = Literal["node", "gpu", "processor"]
"""Hardware that a counter measures. A node counter includes the GPUs and processors of the node."""
POWERCAP = Path("/sys/class/powercap")
PM_COUNTERS = Path("/sys/cray/pm_counters")


class NoCounterError(Exception):
    """A counter is missing or cannot be read. The message states the reason."""


class Counter(Protocol):
    """A cumulative energy counter in joules, which starts at an arbitrary value."""

    source: str
    """Source of the counter: ``rapl``, ``cray`` or ``nvml``."""
    name: str
    """Name of the counter, unique on its host."""
    part: Part
    span: float | None
    """Value in joules at which the counter wraps around, or None if it never wraps around."""
    refresh: float
    """Approximate refresh period of the counter in seconds."""

    def read(self) -> float:
        """Return the current value in joules, or raise NoCounterError."""


@dataclass
class FileCounter:
    """An energy counter stored as one number in a file."""

    source: str
    name: str
    part: Part
    path: Path
    scale: float
    """Conversion factor from the number in the file to joules."""
    span: float | None
    refresh: float

    def read(self) -> float:
        """Return the current value in joules."""
        match = re.match(r"\s*([0-9]{1,20})\b", read_file(self.path))
        if not match:
            raise NoCounterError(f"{self.path}: does not contain a number")
        return int(match[1]) * self.scale


def read_file(path: Path) -> str:
    """Read a counter file of the kernel.

    Raises
    ------
    NoCounterError
        The file cannot be read.
    """
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise NoCounterError(f"{path}: {error.strerror}") from None


def find_rapl_counters(root: Path = POWERCAP) -> Iterator[FileCounter]:
    """Yield the RAPL counters of this node: one per processor package, and separate memory counters if present.

    Zones within a package (cores, graphics) and the platform zone are skipped, because their energy would be counted
    twice. For the same reason, ``intel-rapl-mmio`` is skipped: it is a second interface to the RAPL counters.

    Raises
    ------
    NoCounterError
        The node has no RAPL counters, or a counter cannot be read.
    """
    found_any = False
    for zone in sorted(root.glob("intel-rapl:*")) if root.is_dir() else ():
        name = read_file(zone / "name").strip()
        if not (name.startswith("package-") or name == "dram"):
            continue
        found_any = True
        if name == "dram":
            name = f"dram of {zone.name.split(':')[1]}"
        highest = FileCounter("rapl", name, "processor", zone / "max_energy_range_uj", 1e-6, None, 1e-3).read()
        counter = FileCounter("rapl", name, "processor", zone / "energy_uj", 1e-6, highest, 1e-3)
        counter.read()
        yield counter
    if not found_any:
        raise NoCounterError(f"{root}: does not contain a counter for a processor package")


def open_cray_counter(root: Path = PM_COUNTERS) -> FileCounter:
    """Open the energy counter of a whole Cray node.

    Raises
    ------
    NoCounterError
        The file does not contain a counter, or cannot be read.
    """
    counter = FileCounter("cray", "node", "node", root / "energy", 1.0, None, 0.1)
    counter.read()
    return counter
