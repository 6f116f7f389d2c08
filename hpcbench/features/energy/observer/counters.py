"""Energy counters that the kernel shows as files: RAPL through powercap, and those of Cray nodes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Part = Literal["node", "gpu", "processor"]
"""Hardware that a counter measures. The counter of a node includes its GPUs and processors."""
POWERCAP = Path("/sys/class/powercap")
PM_COUNTERS = Path("/sys/cray/pm_counters")


class NoCounterError(Exception):
    """A counter is missing or cannot be read. The message contains the reason."""


class Counter(Protocol):
    """A counter of joules since an unspecified time."""

    source: str
    """``rapl``, ``cray`` or ``nvml``."""
    name: str
    """Name of the counter, unique on its host."""
    part: Part
    span: float | None
    """Joules at which the counter wraps around; None if it never does."""
    refresh: float
    """Approximate seconds between two changes of the counter."""

    def read(self) -> float:
        """Return the current value in joules. Raises NoCounterError."""


@dataclass
class FileCounter:
    """A counter in a file that contains one number."""

    source: str
    name: str
    part: Part
    path: Path
    scale: float
    """Joules per unit of the number."""
    span: float | None
    refresh: float

    def read(self) -> float:
        """Return the current value in joules."""
        match = re.match(r"\s*([0-9]{1,20})\b", read_file(self.path))
        if not match:
            raise NoCounterError(f"{self.path}: does not contain a number")
        return int(match[1]) * self.scale


def read_file(path: Path) -> str:
    """Return the content of a file of the kernel.

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
    """Yield the RAPL counters of this node: its packages, and their memory if it has separate counters.

    Zones within a package (cores, graphics) and the zone of the whole platform would be counted twice, and so would
    ``intel-rapl-mmio``, a second interface to the same counters.

    Raises
    ------
    NoCounterError
        The node has no counters, or they cannot be read.
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
        raise NoCounterError(f"{root}: does not contain a counter of a package")


def open_cray_counter(root: Path = PM_COUNTERS) -> FileCounter:
    """Return the counter of a whole Cray node.

    Raises
    ------
    NoCounterError
        The file is not a counter, or cannot be read.
    """
    counter = FileCounter("cray", "node", "node", root / "energy", 1.0, None, 0.1)
    counter.read()
    return counter
