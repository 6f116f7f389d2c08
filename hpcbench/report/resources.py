"""What a run took of its machine, as its log says: memory, time of each host, and what ranks were about in a step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.contract.text import printable
from hpcbench.contract.values import integer
from hpcbench.predict import schedule


@dataclass(frozen=True)
class Memory:
    """Peak memory in bytes, and what lasts from step to step; None where the log does not say."""

    device: int | None = None
    """Allocated on a GPU by the rank that needed the most."""
    device_reserved: int | None = None
    """Held on a GPU by PyTorch's allocator, by the rank that held the most."""
    host_rank: int | None = None
    """Resident in the rank that needed the most."""
    host: int | None = None
    """Resident in all ranks together; what ranks share counts for each of them."""
    states: Mapping[str, int] = field(default_factory=dict)
    """Name in the event -> bytes that last from step to step in the rank that holds the most."""


@dataclass(frozen=True)
class HostTime:
    """How long the ranks of a host computed: what a slow node shows in, and waiting for one does not."""

    host: str
    ranks: int
    compute_s: float
    """Seconds a step and rank, without the time in which they waited for messages."""
    over_peers: float | None = None
    """That over the median of all ranks at the same stage of the pipeline, since stages differ in their work; None
    where no other host has ranks at its stages."""


@dataclass(frozen=True)
class Energy:
    """Joules of the steps that count."""

    scope: str
    """What they are of: nodes, GPUs and processors, GPUs, or processors."""
    joules: float
    steps: int
    seconds: float
    """For which counters ran."""
    batch: int | None
    """Samples of a step."""
    parts: Mapping[str, float]
    """Joules a step of ``node``, ``gpu`` and ``processor``, of which they are known."""

    @property
    def per_step(self) -> float:
        """Joules of a step."""
        return self.joules / self.steps

    @property
    def per_sample(self) -> float | None:
        """Joules of a sample; None where nobody says how many a step has."""
        return self.per_step / self.batch if self.batch else None

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds


def energy(log: RunLog, batch: int | None) -> Energy | None:
    """As the ``energy`` event says; None where there is no whole sum."""
    event = log.said(events.Energy)
    if event.scope is None or event.from_step is None or event.to_step is None:
        return None
    joules, seconds, steps = event.joules, event.seconds, event.to_step - event.from_step + 1
    if joules is None or seconds is None or not (0 < joules < inf and 0 < seconds < inf and steps > 0):
        return None
    sums = {"node": event.node_joules, "gpu": event.gpu_joules, "processor": event.processor_joules}
    parts = {name: value / steps for name, value in sums.items() if value is not None and isfinite(value)}
    return Energy(printable(event.scope, 40), joules, steps, seconds, batch, parts)


def memory(log: RunLog) -> Memory:
    """Peak memory, as the ``memory`` event says, or a foreign log's lines."""
    event = log.event(events.Memory)
    if event is None:
        printed = log.steps.column("memory_bytes")
        return Memory(device=int(max(printed)) if printed else None)
    states = {name: getattr(event, name) for name in events.Memory.LASTING}
    return Memory(
        device=event.device_bytes or None,
        device_reserved=event.device_reserved_bytes,
        host_rank=event.host_rank_bytes,
        host=event.host_bytes,
        states={name: held for name, held in states.items() if held is not None and held >= 0},
    )


def hosts(log: RunLog) -> tuple[HostTime, ...]:
    """How long each host computed, as the ``hosts`` event says."""
    found = []
    for row in log.said(events.Hosts).hosts or ():
        if row.host is not None and row.compute_s is not None:
            found.append(HostTime(printable(row.host, 80), row.ranks or 0, row.compute_s, row.over_peers))
    return tuple(found)


PARTS = ("forward", "backward", "bubble", "reduction", "optimizer", "other")
"""Of a step: their seconds add up to it."""


@dataclass(frozen=True)
class Phases:
    """Seconds a step and rank, means over the steps that were counted and the stages, which have equally many ranks."""

    step: float
    forward: float
    backward: float
    """With what is computed again."""
    bubble: float
    """In the passes, waiting for a message of another stage until it is there, transfer and codec included."""
    reduction: float
    """Waiting for reduced gradients after the last backward pass."""
    optimizer: float
    other: float
    idle: float | None
    """Part of the passes, from their start to the end of the last stage's, in which a stage has nothing to compute:
    its bubble, and the time until the last one has ended. None of one stage."""
    idle_by_schedule: float | None
    """What `idle` comes to where all parts take equally long and messages no time; None of one stage, and where
    nobody says how many micro-batches there were."""


def phases(log: RunLog, settings: Mapping[str, Any]) -> Phases | None:
    """Means over the stages.

    Parameters
    ----------
    log
        Of the run.
    settings
        Its run file: tells what the schedule's bubble rests on.

    Returns
    -------
    Phases or None
        None where the log divides no step, or what it says is no division of one.
    """
    stages = by_stage(log)
    if not stages:
        return None
    mean = {part: sum(stage[part] for stage in stages) / len(stages) for part in ("step", *PARTS)}
    # Stages begin a step together; the passes of the one that ends last tell how long the others had nothing to do.
    whole = max(stage["forward"] + stage["backward"] + stage["bubble"] for stage in stages)
    busy = mean["forward"] + mean["backward"]
    several = len(stages) > 1 and whole > 0
    return Phases(
        **mean,
        idle=1 - busy / whole if several else None,
        idle_by_schedule=_by_schedule(settings, len(stages)) if several else None,
    )


def by_stage(log: RunLog) -> list[dict[str, float]]:
    """Seconds of each stage by the names in `PARTS`, and its ``step``; empty where one has not all of them."""
    rows = log.said(events.Phases).stages or ()
    found = [{part: getattr(row, f"{part}_s") for part in ("step", *PARTS)} for row in rows]
    known = [{part: value for part, value in row.items() if value is not None and isfinite(value)} for row in found]
    whole = all(len(row) == 1 + len(PARTS) and row["step"] > 0 for row in known)
    return known if whole and all(0 <= value < 1e12 for row in known for value in row.values()) else []


def _by_schedule(settings: Mapping[str, Any], stages: int) -> float | None:
    batch, micro = (integer(settings, "train", name) for name in ("global_batch", "micro_batch"))
    replicas, chunks = integer(settings, "layout", "dp"), integer(settings, "layout", "chunks") or 1
    if not batch or not micro or not replicas or min(batch, micro, replicas, chunks) < 1:
        return None
    return schedule.bubble(stages=stages, microbatches=batch // (micro * replicas), chunks=chunks)
