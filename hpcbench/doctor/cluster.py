"""What was seen of a machine, before it becomes a site file: values with their sources."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Said:
    """A value and where it comes from."""

    value: Any
    source: str
    sure: bool = True
    """False for a guess that somebody has to check."""


@dataclass(frozen=True)
class Nodes:
    """Nodes that are alike; None is what could not be seen."""

    count: int
    cores: int | None = None
    sockets: int | None = None
    threads: int | None = None
    memory_gb: int | None = None
    gpus: int | None = None
    gpu: str | None = None
    socket_gpus: tuple[int, ...] | None = None
    gpu_memory_gb: int | None = None

    def __str__(self) -> str:
        parts = [f"{self.count} node{'' if self.count == 1 else 's'}"]
        if self.cores:
            parts.append(f"{self.cores} cores")
        if self.gpus:
            parts.append(f"{self.gpus} GPUs{f' {self.gpu}' if self.gpu else ''}")
        if self.memory_gb:
            parts.append(f"{self.memory_gb} GB")
        return ", ".join(parts)


@dataclass(frozen=True)
class Line:
    """A queue or partition."""

    name: str
    source: str
    nodes: Sequence[Nodes] = ()
    default: bool = False
    open: bool = True
    min_nodes: int | None = None
    max_nodes: int | None = None
    max_walltime: str | None = None
    """As a site file has it."""
    max_submitted: int | None = None
    notes: Sequence[str] = ()
    """What else it says, for people."""

    def kind(self) -> Nodes | None:
        """The nodes that it has most of, those with GPUs before the others."""
        return max(self.nodes, key=lambda nodes: (bool(nodes.gpus), nodes.count), default=None)


@dataclass
class Cluster:
    """All that was seen."""

    kind: str
    fact: str
    """Scheduler and version, for people."""
    name: str | None = None
    queues: list[Line] = field(default_factory=list)
    scheduler: dict[str, Said] = field(default_factory=dict)
    """Values of the site's section of that name, but for its kind."""
    notes: list[str] = field(default_factory=list)
    """What has no field, or could not be asked."""

    def chosen(self) -> Line | None:
        """The queue whose nodes the site describes: the default one, unless only others have GPUs."""
        ranked = sorted(self.queues, key=lambda line: (not line.open, not line.default))
        with_gpus = [line for line in ranked if (kind := line.kind()) and kind.gpus]
        for line in with_gpus:
            if line.default or line.open:
                return line
        return next(iter(with_gpus or ranked), None)
