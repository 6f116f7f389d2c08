"""Resource usage of a run, from the log: memory, computing time per host, and step phases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.text import make_printable
from hpcbench.contract.training import UNFLUSHED


@dataclass(frozen=True)
class PeakMemory:
    """Peak and persistent memory in bytes, or None if the log does not contain the value."""

    device: int | None = None
    """Maximum over ranks of the allocated GPU memory."""
    device_reserved: int | None = None
    """Maximum over ranks of the GPU memory reserved by PyTorch's allocator."""
    host_rank: int | None = None
    """Maximum over ranks of the resident memory."""
    host: int | None = None
    """Total resident memory of all ranks. Shared memory is counted once per rank."""
    states: Mapping[str, int] = field(default_factory=dict)
    """Maximum over ranks of the bytes that persist between steps, keyed by name in the event."""


@dataclass(frozen=True)
class HostTime:
    """Computing time of a host's ranks, without waiting for other hosts, so that slow hosts stand out."""

    host: str
    ranks: int
    compute_s: float
    """Time in seconds per step and rank, excluding waiting for messages."""
    over_peers: float | None = None
    """Computing time divided by the median over all ranks of the same stage, because stages differ in work.

    The value is None if no other host has ranks of the same stages.
    """


def read_memory(log: RunLog) -> PeakMemory:
    """Return the peak memory from the ``memory`` event, or from log lines of other programs."""
    event = log.event(events.MemoryUse)
    if event is None:
        printed = log.steps.column("memory_bytes")
        return PeakMemory(device=int(max(printed)) if printed else None)
    states = {name: getattr(event, name) for name in events.MemoryUse.LASTING}
    return PeakMemory(
        device=event.device_bytes or None,
        device_reserved=event.device_reserved_bytes,
        host_rank=event.host_rank_bytes,
        host=event.host_bytes,
        states={name: held for name, held in states.items() if held is not None and held >= 0},
    )


def read_hosts(log: RunLog) -> tuple[HostTime, ...]:
    """Return the computing time of each host from the ``hosts`` event."""
    times = []
    for row in log.read_event(events.ComputingTimes).hosts or ():
        if row.host is not None and row.compute_s is not None:
            times.append(HostTime(make_printable(row.host, 80), row.ranks or 0, row.compute_s, row.over_peers))
    return tuple(times)


PARTS = ("forward", "backward", "bubble", "reduction", "optimizer", "other")
"""Phases of a step, whose times add up to the step time."""


@dataclass(frozen=True)
class StepPhases:
    """Times of step phases in seconds per step and rank.

    Times are means over the counted steps and over the stages, which all have the same number of ranks.
    """

    step: float
    forward: float
    backward: float
    """Time in seconds of the backward pass, including recomputation."""
    bubble: float
    """Time in seconds spent waiting for messages of other stages during the passes, including transfer and codec."""
    reduction: float
    """Time in seconds spent waiting for reduced gradients after the last backward pass."""
    optimizer: float
    other: float
    idle: float | None
    """Idle fraction of a stage during the passes, including the bubble and the time until the last stage has finished.

    This period ends when the last stage has finished its passes. The value is None for a single stage.
    """
    idle_by_schedule: float | None
    """Value of `idle` in the ideal case that all parts take equally long and messages take no time.

    The value is None for a single stage, or if the number of micro-batches is unknown.
    """

    @property
    def waiting(self) -> float:
        """Fraction of the time that ranks spend waiting for each other.

        With several stages, this is the idle fraction of the passes. With a single stage, it is the fraction of the
        step outside the passes, including the update. Replicas of a single stage wait for gradients and weights:
        collectives gather the weights during the update, and a parameter server sends them before the passes.
        """
        return 1 - (self.forward + self.backward) / self.step if self.idle is None else self.idle


def average_phases(log: RunLog, settings: LoggedSettings) -> StepPhases | None:
    """Average the phases of a step over the stages.

    The result is None if the log does not contain step phases, or if they do not add up to the step time.
    """
    stages = read_stages(log)
    if not stages:
        return None
    mean = {part: sum(stage[part] for stage in stages) / len(stages) for part in ("step", *PARTS)}
    # All stages start a step together. The stage that finishes last determines the idle time of the others.
    longest = max(stage["forward"] + stage["backward"] + stage["bubble"] for stage in stages)
    busy = mean["forward"] + mean["backward"]
    several = len(stages) > 1 and longest > 0
    return StepPhases(
        **mean,
        idle=1 - busy / longest if several else None,
        idle_by_schedule=_compute_scheduled_idle(settings, len(stages)) if several else None,
    )


def read_stages(log: RunLog) -> list[dict[str, float]]:
    """Return the times in seconds of each stage's `PARTS` and ``step``. The result is empty if any time is missing."""
    rows = log.read_event(events.PhaseTimes).stages or ()
    rows_by_part = [{part: getattr(row, f"{part}_s") for part in ("step", *PARTS)} for row in rows]
    stages = [
        {part: value for part, value in row.items() if value is not None and isfinite(value)} for row in rows_by_part
    ]
    is_complete = all(len(row) == 1 + len(PARTS) and row["step"] > 0 for row in stages)
    return stages if is_complete and all(0 <= value < 1e12 for row in stages for value in row.values()) else []


def _compute_scheduled_idle(settings: LoggedSettings, stages: int) -> float | None:
    batch, micro = settings.train.global_batch, settings.train.micro_batch
    if settings.train.schedule in UNFLUSHED:
        return 0.0
    replicas, chunks = settings.layout.dp, settings.layout.chunks
    if not batch or not micro or not replicas or min(batch, micro, replicas, chunks) < 1:
        return None
    return compute_bubble(stages=stages, microbatches=batch // (micro * replicas), chunks=chunks)


def compute_bubble(*, stages: int, microbatches: int, chunks: int = 1) -> float:
    """Return the idle fraction of a step if all parts take the same time and messages take no time.

    The fraction is ``(p - 1) / (v m + p - 1)``. The ``(p - 1) / (v m)`` of arXiv 2104.04473 (section 2.2) is relative
    to the time without the bubble. For GPipe and 1F1B, v = 1.
    """
    return (stages - 1) / (chunks * microbatches + stages - 1)
