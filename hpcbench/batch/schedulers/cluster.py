"""Results of queries of schedulers about a machine: whether they run, their queues, and their nodes."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcbench.batch.schedulers.attempt import CommandOutcome


@dataclass(frozen=True)
class Sighting:
    """Outcome of the first calls to one kind of scheduler."""

    kind: str
    answers: bool | None
    """Whether the scheduler answers and takes jobs; None if its client hangs."""
    fact: str
    """Result or failure, for people."""
    client: str | None = None
    """Path of its program for jobs. It proves nothing: sites wrap these programs."""
    name: str | None = None
    """Name of the cluster that the scheduler reports."""
    version: str | None = None


def report_failure(kind: str, client: str, attempt: CommandOutcome, otherwise: str) -> Sighting:
    """Return the sighting of a scheduler that did not answer a call.

    Parameters
    ----------
    client
        Name of its program for jobs.
    otherwise
        What is wrong with the output if the call itself succeeded.
    """
    path = shutil.which(client)
    printed = " ".join(attempt.out.split())[:120]
    fact = attempt.problem or f"{otherwise}{f': {printed}' if printed else ''}"
    if not attempt.present and path:
        fact += f"; {path} exists, but it may be a wrapper"
    return Sighting(kind, None if attempt.hung else False, fact, path)


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
    """Why the number of GPUs has to be checked, for people; empty if it is certain."""
    gres: str = ""
    """Request for whole GPUs only, such as ``gpu:a100:4``; empty unless the node also has slices of GPUs."""

    @property
    def shape(self) -> tuple[int | None, int | None, str | None]:
        """Properties that a site file describes: cores, GPUs and their model."""
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
    """Longest walltime, in the notation of site files."""
    max_submitted: int | None = None
    sharing: str = "?"
    """Rule about sharing nodes: Slurm's ``OverSubscribe``, LSF's ``SCHEDULING POLICIES``."""
    notes: Sequence[str] = ()
    """Other properties, for people."""
    barred: str = ""
    """Why this user may not submit to it, for people; empty if no rule is known that forbids it."""

    def kind(self) -> Nodes | None:
        """Return the most frequent kind of node, kinds with GPUs before the others."""
        return max(merge(self.nodes), key=lambda nodes: (bool(nodes.gpus), nodes.count), default=None)


def merge(nodes: Sequence[Nodes]) -> list[Nodes]:
    """Join nodes of one shape that differ only in their memory; the smallest memory counts for all."""
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


def parse_bytes(text: str) -> float:
    """Return the bytes of a size such as ``606.6G``, in binary units; 0 for another text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    return float(match[1]) * 1024.0 ** " KMGTP".index(match[2] or " ") if match else 0.0
