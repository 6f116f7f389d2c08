"""Findings about a machine from which the draft of a site file is written: values with their sources."""

from dataclasses import dataclass, field
from typing import Any

from hpcbench.batch.schedulers.cluster import QueueFacts


@dataclass(frozen=True)
class Said:
    """A value and its source."""

    value: Any
    source: str
    sure: bool = True
    """Whether the value is certain; False for a guess that the user has to check."""


@dataclass
class Cluster:
    """All findings about a machine."""

    kind: str
    fact: str
    """Scheduler and version, for people."""
    name: str | None = None
    queues: list[QueueFacts] = field(default_factory=list)
    scheduler: dict[str, Said] = field(default_factory=dict)
    """Values of the site's section ``scheduler``, except its kind."""
    notes: list[str] = field(default_factory=list)
    """Findings that have no field, and calls that failed."""

    def chosen(self) -> QueueFacts | None:
        """Return the queue whose nodes the site describes: the default one, unless only others have GPUs.

        A queue that the user may submit to comes before all that are closed to the user.
        """

        def rank(line: QueueFacts) -> tuple[bool, bool, bool, bool]:
            kind = line.kind()
            return bool(line.barred), not (kind and kind.gpus), not line.open, not line.default

        return min(self.queues, key=rank, default=None)
