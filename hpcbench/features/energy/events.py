"""The event of a run's energy."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.measured import Counted
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class EnergyCounter(LogObject):
    """A counter of energy, over the steps that are counted."""

    host: str | None
    source: str | None
    """``rapl``, ``cray`` or ``nvml``."""
    name: str | None
    """Among those of its host."""
    part: str | None
    """``node``, ``gpu`` or ``processor``."""
    joules: float | None
    refresh_s: float | None
    """Seconds between two of its changes, about."""
    problem: str | None = None
    """Why there are no joules."""


@dataclass(frozen=True, kw_only=True)
class Energy(Counted):
    """What the steps took in joules, all hosts together; evaluations and checkpoints between them are left out."""

    NAME: ClassVar[str] = "energy"
    seconds: float | None
    """For which the counters ran."""
    scope: str | None
    """What the joules are of: nodes, GPUs and processors, GPUs, or processors. None where there is no whole sum."""
    joules: float | None
    """Joules of the scope."""
    node_joules: float | None
    """Joules of whole nodes; None if a node has no counter, or one with a problem, as in the next two."""
    gpu_joules: float | None
    processor_joules: float | None
    """Joules of processors, with their memory where that is counted."""
    counters: tuple[EnergyCounter, ...] | None
    problems: tuple[str, ...] | None
    """Counters that are missing, or are not to be used, and why."""
    wide: tuple[str, ...] | None
    """Where counters hold more than the run."""
