"""Log event with the energy of a run."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.measured import Counted
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class EnergyCounter(LogObject):
    """Energy measured by one counter over the counted steps."""

    host: str | None
    source: str | None
    """Source of the counter: ``rapl``, ``cray`` or ``nvml``."""
    name: str | None
    """Name of the counter, unique on its host."""
    part: str | None
    """Measured hardware: ``node``, ``gpu`` or ``processor``."""
    joules: float | None
    refresh_s: float | None
    """Approximate refresh period of the counter in seconds."""
    problem: str | None = None
    """Reason why the counter is unusable, or None."""


@dataclass(frozen=True, kw_only=True)
class Energy(Counted):
    """Energy of the counted steps, summed over all hosts. Evaluations and checkpoints are excluded."""

    NAME: ClassVar[str] = "energy"
    seconds: float | None
    """Total measured time in seconds."""
    scope: str | None
    """Hardware whose energy is summed: ``nodes``, ``GPUs and processors``, ``GPUs`` or ``processors``.

    The value is None if a counter is missing.
    """
    joules: float | None
    """Energy of the scope in joules."""
    node_joules: float | None
    """Joules of whole nodes. Here and in the next two fields, None means that a counter is missing or unusable."""
    gpu_joules: float | None
    processor_joules: float | None
    """Joules of processors. Memory is included if it has counters."""
    counters: tuple[EnergyCounter, ...] | None
    problems: tuple[str, ...] | None
    """Missing or unusable counters, with the reasons."""
    wide: tuple[str, ...] | None
    """Hosts whose counters include energy used by other jobs."""
