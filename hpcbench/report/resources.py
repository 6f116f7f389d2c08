"""Use of the machine by a run, from its log: memory, time of each host, and phases of a step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.contract.settings import LoggedSettings
from hpcbench.contract.text import make_printable
from hpcbench.contract.training import UNFLUSHED
from hpcbench.predict import schedule


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory in bytes, and memory that lasts from step to step; None if the log does not contain it."""

    device: int | None = None
    """Allocated memory on a GPU of the rank that needed the most."""
    device_reserved: int | None = None
    """Memory that PyTorch's allocator held on a GPU, of the rank that held the most."""
    host_rank: int | None = None
    """Resident memory of the rank that needed the most."""
    host: int | None = None
    """Resident memory of all ranks together. Shared memory counts once for each rank."""
    states: Mapping[str, int] = field(default_factory=dict)
    """Bytes that persist between steps on the rank that holds the most, keyed by their names in the event."""


@dataclass(frozen=True)
class HostTime:
    """Computing time of the ranks of a host. It shows a slow node, because waiting for one does not count."""

    host: str
    ranks: int
    compute_s: float
    """Seconds per step and rank, without waiting for messages."""
    over_peers: float | None = None
    """The time divided by the median of all ranks at the same pipeline stage, because stages differ in their work.

    None if no other host has ranks at its stages.
    """


def read_memory(log: RunLog) -> PeakMemory:
    """Return the peak memory, from the ``memory`` event or the lines of another program's log."""
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
    """Return the computing time of each host, from the ``hosts`` event."""
    times = []
    for row in log.read_event(events.ComputingTimes).hosts or ():
        if row.host is not None and row.compute_s is not None:
            times.append(HostTime(make_printable(row.host, 80), row.ranks or 0, row.compute_s, row.over_peers))
    return tuple(times)


PARTS = ("forward", "backward", "bubble", "reduction", "optimizer", "other")
"""Parts of a step. Their seconds add up to it."""


@dataclass(frozen=True)
class StepPhases:
    """Seconds per step and rank: means over the counted steps and the stages, which have the same number of ranks."""

    step: float
    forward: float
    backward: float
    """Seconds in the backward pass, recomputation included."""
    bubble: float
    """Seconds of waiting for a message of another stage during the passes, transfer and codec included."""
    reduction: float
    """Seconds of waiting for reduced gradients after the last backward pass."""
    optimizer: float
    other: float
    idle: float | None
    """Fraction of the passes in which a stage has nothing to compute: its bubble, and the time until the last stage
    has ended.

    The passes last from their start to the end of the last stage's. None for a single stage.
    """
    idle_by_schedule: float | None
    """Value that `idle` would have if all parts took equally long and messages no time.

    None for a single stage, and if the number of micro-batches is not known.
    """

    @property
    def waiting(self) -> float:
        """Fraction of the time in which ranks wait for each other.

        With several stages, it is the idle fraction of the passes. Replicas of a single stage wait for gradients and
        for weights: collectives gather the weights with the update, and a parameter server sends them before the
        passes. There it is the fraction of the step outside of the passes, including the update.
        """
        return 1 - (self.forward + self.backward) / self.step if self.idle is None else self.idle


def average_phases(log: RunLog, settings: LoggedSettings) -> StepPhases | None:
    """Average the phases of a step over the stages.

    None if the log does not divide a step or its parts do not add up.
    """
    stages = read_stages(log)
    if not stages:
        return None
    mean = {part: sum(stage[part] for stage in stages) / len(stages) for part in ("step", *PARTS)}
    # Stages begin a step together: the passes of the last stage to end determine the idle time of the others.
    longest = max(stage["forward"] + stage["backward"] + stage["bubble"] for stage in stages)
    busy = mean["forward"] + mean["backward"]
    several = len(stages) > 1 and longest > 0
    return StepPhases(
        **mean,
        idle=1 - busy / longest if several else None,
        idle_by_schedule=_compute_scheduled_idle(settings, len(stages)) if several else None,
    )


def read_stages(log: RunLog) -> list[dict[str, float]]:
    """Return the seconds of each stage by `PARTS`, and of its ``step``; empty if a stage lacks one of them."""
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
    return schedule.compute_bubble(stages=stages, microbatches=batch // (micro * replicas), chunks=chunks)
