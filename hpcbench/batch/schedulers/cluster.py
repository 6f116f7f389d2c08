"""Facts about a machine reported by its scheduler: availability, queues, and nodes."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcbench.batch.schedulers.attempt import CommandOutcome
from hpcbench.contract.text import count_noun


@dataclass(frozen=True)
class Sighting:
    """Outcome of the first calls to a scheduler."""

    kind: str
    answers: bool | None
    """Whether the scheduler responds and accepts jobs, or None if its client hangs."""
    fact: str
    """Human-readable result, or reason for the failure."""
    client: str | None = None
    """Path of the submission command.

    The scheduler may be missing even if the command exists, because some sites wrap these commands.
    """
    name: str | None = None
    """Cluster name reported by the scheduler."""
    version: str | None = None


def report_failure(kind: str, client: str, attempt: CommandOutcome, otherwise: str) -> Sighting:
    """Return the `Sighting` for a scheduler that did not respond to a call.

    Parameters
    ----------
    client
        Name of the submission command.
    otherwise
        Message if the call succeeded but its output was not as expected.
    """
    path = shutil.which(client)
    printed = " ".join(attempt.out.split())[:120]
    fact = attempt.problem or f"{otherwise}{f': {printed}' if printed else ''}"
    if not attempt.present and path:
        fact += f"; {path} exists, but it may be a wrapper"
    return Sighting(kind, None if attempt.hung else False, fact, path)


@dataclass(frozen=True)
class Nodes:
    """A group of identical nodes. Undetected properties are None."""

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
    """Human-readable reason why the GPU count needs checking. It is empty if the count is certain."""
    gres: str = ""
    """GPU request that excludes GPU slices, such as ``gpu:a100:4``. It is empty if the node has no slices."""

    @property
    def shape(self) -> tuple[int | None, int | None, str | None]:
        """Properties described in a site file: number of cores, number of GPUs, and GPU model."""
        return self.cores, self.gpus, self.gpu

    def __str__(self) -> str:
        parts = [count_noun(self.count, "node")]
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
    """Maximum walltime, in the format of site files."""
    max_submitted: int | None = None
    sharing: str = "?"
    """Node sharing policy: Slurm's ``OverSubscribe``, or LSF's ``SCHEDULING POLICIES``."""
    notes: Sequence[str] = ()
    """Other properties, in human-readable form."""
    barred: str = ""
    """Human-readable reason why this user must not submit to the queue.

    The text is empty if the user may submit, or if the rules of the queue are unknown.
    """

    def kind(self) -> Nodes | None:
        """Return the most frequent kind of node. Kinds with GPUs take precedence."""
        return max(merge(self.nodes), key=lambda nodes: (bool(nodes.gpus), nodes.count), default=None)


def merge(nodes: Sequence[Nodes]) -> list[Nodes]:
    """Merge groups of nodes that differ only in memory. The smallest memory size is kept."""
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
    """Convert a size in binary units, such as ``606.6G``, to bytes. Return 0 if it is not a size."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    return float(match[1]) * 1024.0 ** " KMGTP".index(match[2] or " ") if match else 0.0
