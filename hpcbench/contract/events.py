"""The events in a run's log. Each class formats and parses the line of its event.

A run first writes start, environment and configuration events. Between its steps, it writes events for checkpoints,
evaluations, sampled messages and a trace. After the last step, it writes events about traffic, calls, experts, sparse
gradients, phases, staleness, hosts, memory, sparsity and energy. The end event is last.
"""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.event.applied import AppliedScheme
from hpcbench.contract.event.asked import (
    Configuration,
    IdleRule,
    SparseSwitch,
    UnknownGroup,
    VarianceFrozen,
    WholeGradients,
)
from hpcbench.contract.event.base import BEGIN, Event, parse_object
from hpcbench.contract.event.called import CallGroup, ProgramCalls
from hpcbench.contract.event.life import (
    CheckpointCarried,
    CheckpointDamaged,
    CheckpointWritten,
    End,
    Evaluation,
    Start,
)
from hpcbench.contract.event.machine import Binding, Environment, Host, HostGpu, Rank, RankGpu
from hpcbench.contract.event.measured import (
    ChannelTraffic,
    ComputingTimes,
    ExpertLayer,
    ExpertTokens,
    HostTimes,
    MemoryUse,
    PhaseTimes,
    RowTraffic,
    StageTimes,
    Staleness,
    StalenessOf,
    TrafficTotals,
)
from hpcbench.features.events import EVENTS

__all__ = [
    "BEGIN",
    "KINDS",
    "AppliedScheme",
    "Binding",
    "CallGroup",
    "ChannelTraffic",
    "CheckpointCarried",
    "CheckpointDamaged",
    "CheckpointWritten",
    "ComputingTimes",
    "Configuration",
    "End",
    "Environment",
    "Evaluation",
    "Event",
    "ExpertLayer",
    "ExpertTokens",
    "Host",
    "HostGpu",
    "HostTimes",
    "IdleRule",
    "MemoryUse",
    "PhaseTimes",
    "ProgramCalls",
    "Rank",
    "RankGpu",
    "RowTraffic",
    "SparseSwitch",
    "StageTimes",
    "Staleness",
    "StalenessOf",
    "Start",
    "TrafficTotals",
    "UnknownEvent",
    "UnknownGroup",
    "VarianceFrozen",
    "WholeGradients",
    "parse_event",
]


@dataclass(frozen=True, kw_only=True)
class UnknownEvent(Event):
    """An event that this version does not define."""

    NAME: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """Name of the event in the log line."""
        return str(self.raw["event"])


_KINDS: tuple[type[Event], ...] = (
    Start,
    CheckpointDamaged,
    Environment,
    AppliedScheme,
    Binding,
    IdleRule,
    WholeGradients,
    SparseSwitch,
    Configuration,
    CheckpointCarried,
    VarianceFrozen,
    Evaluation,
    CheckpointWritten,
    TrafficTotals,
    ProgramCalls,
    UnknownGroup,
    ExpertTokens,
    RowTraffic,
    PhaseTimes,
    Staleness,
    ComputingTimes,
    MemoryUse,
    *EVENTS,
    End,
)
KINDS = {kind.NAME: kind for kind in _KINDS}
"""Event classes keyed by event name."""


def parse_event(text: str, line: int) -> Event | DamagedLine:
    """Parse a line that begins with `BEGIN`. Return a `DamagedLine` if the line is incomplete."""
    data = parse_object(text, line)
    return data if isinstance(data, DamagedLine) else KINDS.get(data["event"], UnknownEvent).read(data, line=line)
