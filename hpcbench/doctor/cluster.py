"""What was seen of a machine, before it becomes a site file: values with their sources."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    """Identical nodes; None is a property that could not be detected."""

    count: int
    cores: int | None = None
    sockets: int | None = None
    threads: int | None = None
    memory_gb: int | None = None
    gpus: int | None = None
    gpu: str | None = None
    socket_gpus: tuple[int, ...] | None = None
    gpu_memory_gb: int | None = None
    doubt: str = ""
    """Why the number of GPUs has to be checked, for people; empty where it is certain."""
    gres: str = ""
    """How a job asks for these GPUs alone where the node has slices of others, too: ``gpu:a100:4``."""

    @property
    def shape(self) -> tuple[int | None, int | None, str | None]:
        """What a site file describes: cores, GPUs and their model."""
        return self.cores, self.gpus, self.gpu

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
class QueueFacts:
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
    barred: str = ""
    """Why this user may not submit to it, for people; empty where nothing says so."""

    def kind(self) -> Nodes | None:
        """Return the kind of node that it has most of, kinds with GPUs before the others."""
        return max(merge(self.nodes), key=lambda nodes: (bool(nodes.gpus), nodes.count), default=None)


@dataclass
class Cluster:
    """All that was seen."""

    kind: str
    fact: str
    """Scheduler and version, for people."""
    name: str | None = None
    queues: list[QueueFacts] = field(default_factory=list)
    scheduler: dict[str, Said] = field(default_factory=dict)
    """Values of the site's section of that name, but for its kind."""
    notes: list[str] = field(default_factory=list)
    """What has no field, or could not be asked."""

    def chosen(self) -> QueueFacts | None:
        """Return the queue whose nodes the site describes: the default one, unless only others have GPUs.

        A queue that the user may submit to comes before all that are closed to the user.
        """

        def rank(line: QueueFacts) -> tuple[bool, bool, bool, bool]:
            kind = line.kind()
            return bool(line.barred), not (kind and kind.gpus), not line.open, not line.default

        return min(self.queues, key=rank, default=None)


def merge(nodes: Sequence[Nodes]) -> list[Nodes]:
    """Join nodes of one shape that differ in their memory alone; the smallest memory counts for all."""
    merged: dict[tuple[int | None, int | None, str | None], Nodes] = {}
    for each in nodes:
        before = merged.get(each.shape)
        if before is None:
            merged[each.shape] = each
            continue
        memory = min((gb for gb in (before.memory_gb, each.memory_gb) if gb), default=None)
        larger = max(before, each, key=lambda kind: kind.count)
        merged[each.shape] = replace(larger, count=before.count + each.count, memory_gb=memory)
    return list(merged.values())
