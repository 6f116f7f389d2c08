"""The event of a run's energy."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.measured import Counted
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class EnergyCounter(LogObject):
    """The energy that one counter measured over the counted steps."""

    host: str | None
    source: str | None
    """``rapl``, ``cray`` or ``nvml``."""
    name: str | None
    """Name of the counter, unique on its host."""
    part: str | None
    """``node``, ``gpu`` or ``processor``."""
    joules: float | None
    refresh_s: float | None
    """Approximate seconds between two changes of the counter."""
    problem: str | None = None
    """Why the joules cannot be used; None if they can."""


@dataclass(frozen=True, kw_only=True)
class Energy(Counted):
    """Energy of the counted steps, summed over all hosts, without evaluations and checkpoints between them."""

    NAME: ClassVar[str] = "energy"
    seconds: float | None
    """Seconds for which the counters ran."""
    scope: str | None
    """Hardware whose energy is summed: ``nodes``, ``GPUs and processors``, ``GPUs`` or ``processors``.

    None if a counter is missing.
    """
    joules: float | None
    """Energy of the scope in joules."""
    node_joules: float | None
    """Joules of whole nodes. This and the next two are None if a counter is missing or has a problem."""
    gpu_joules: float | None
    processor_joules: float | None
    """Joules of processors, including their memory if it has counters."""
    counters: tuple[EnergyCounter, ...] | None
    problems: tuple[str, ...] | None
    """Counters that are missing or unusable, and the reasons."""
    wide: tuple[str, ...] | None
    """Hosts whose counters include the energy of other jobs."""
