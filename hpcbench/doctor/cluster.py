"""Findings about a machine, with their sources, for the draft of a site file."""

import re
from dataclasses import dataclass, field
from typing import Any

from hpcbench.batch.schedulers.cluster import QueueFacts
from hpcbench.contract.section import LABEL


@dataclass(frozen=True)
class Said:
    """A value and its source."""

    value: Any
    source: str
    sure: bool = True
    """Whether the value is certain. The flag is False for a guess that the user must check."""


@dataclass
class Cluster:
    """All findings about a machine."""

    kind: str
    fact: str
    """Human-readable scheduler name and version."""
    name: str | None = None
    queues: list[QueueFacts] = field(default_factory=list)
    scheduler: dict[str, Said] = field(default_factory=dict)
    """Values of the site's ``scheduler`` section, except ``kind``."""
    notes: list[str] = field(default_factory=list)
    """Findings that have no field in the site file, and failed commands."""

    def chosen(self) -> QueueFacts | None:
        """Return the queue whose nodes the site file describes: the default queue, unless only other queues have GPUs.

        Queues that are open to the user and whose name a site file may contain take precedence.
        """

        def rank(line: QueueFacts) -> tuple[bool, ...]:
            kind = line.kind()
            unlisted = bool(line.name) and not re.fullmatch(LABEL, line.name)
            return unlisted, bool(line.barred), not (kind and kind.gpus), not line.open, not line.default

        return min(self.queues, key=rank, default=None)
