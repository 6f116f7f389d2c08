"""What the ranks were about in a step, by their stage of the pipeline: what a run's ``phases`` event says."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from hpcbench.collect.lines import integer
from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.predict import schedule

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
