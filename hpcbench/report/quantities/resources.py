"""Report quantities for memory use and for the phases of a step."""

from collections.abc import Callable
from dataclasses import replace

from hpcbench.contract.events import MemoryUse
from hpcbench.report.measures import Measures
from hpcbench.report.quantities import BYTES, HIGHEST, MEDIAN, PERCENT, SECONDS, Exported, Quantity, Value
from hpcbench.report.quantities.traffic import find_dimension
from hpcbench.report.resources import PARTS
from hpcbench.report.traffic import DIMENSIONS


def _declare_memory(key: str, head: str, meaning: str, run: Callable[[Measures], Value], group: int) -> Quantity:
    """Declare a memory quantity in bytes, taken from the run with the highest usage."""
    return Quantity(
        key=key,
        head=f"{head} ({{unit}})",
        unit="B",
        meaning=meaning,
        scale=BYTES,
        run=run,
        over_runs=HIGHEST,
        better="lower",
        table="memory",
        group=group,
        exported=Exported("runs", "integer", MemoryUse),
    )


HOST = _declare_memory(
    "host_bytes",
    "host, all ranks",
    "Peak resident memory of all ranks together; shared memory counts once for each rank",
    lambda run: run.memory.host,
    3,
)
HOST_RANK = _declare_memory(
    "host_rank_bytes",
    "host, one rank",
    "Peak resident memory of the rank that needed the most",
    lambda run: run.memory.host_rank,
    2,
)
DEVICE = _declare_memory(
    "device_bytes",
    "GPU",
    "Peak of the memory allocated on a GPU, for the rank that allocated the most",
    lambda run: run.memory.device,
    0,
)
RESERVED = _declare_memory(
    "device_reserved_bytes",
    "GPU reserved",
    "Peak of the memory that PyTorch's allocator held on a GPU, for the rank that held the most",
    lambda run: run.memory.device_reserved,
    1,
)
_LASTING = {
    "parameters": "Weights that the passes use",
    "stashes": "Older versions of the weights",
    "gradients": "Gradients: complete ones, and the sums that the optimizer reads",
    "optimizer": "Master weights and moments",
    "residuals": "Residuals of error feedback",
}


def _declare_lasting(key: str) -> Quantity:
    where, what, _ = key.split("_")
    meaning = f"{_LASTING[what]}; memory of the {where} that is in use between steps, for the rank that stores the most"
    return _declare_memory(
        key, what if where == "device" else f"{what}, host", meaning, lambda run: run.memory.states.get(key), 4
    )


LASTING = tuple(map(_declare_lasting, MemoryUse.LASTING))
MEMORY = (HOST, HOST_RANK, DEVICE, RESERVED, *LASTING)

_MEANINGS = {
    "forward": "Time of the forward passes, including their tensor-parallel traffic",
    "backward": "Time of the backward passes, including their traffic and recomputation",
    "bubble": "Time within the passes spent waiting for messages of other stages",
    "reduction": "Time from the last backward pass until the gradients are reduced",
    "optimizer": "Time from the computation of the gradient norm until the new weights are gathered",
    "other": "Remaining time of the step",
    "step": "Total time of the step",
}


def _read_seconds(run: Measures, part: str) -> float | None:
    """Return the time of a step phase in seconds. A single stage has no bubble."""
    if run.phases is None or (part == "bubble" and run.phases.idle is None):
        return None
    seconds: float = getattr(run.phases, part)
    return seconds


def _declare_phase(part: str) -> Quantity:
    return Quantity(
        key=f"{part}_s",
        head=part,
        unit="s",
        meaning=_MEANINGS[part],
        scale=SECONDS,
        run=lambda run: _read_seconds(run, part),
        over_steps="mean of the steps",
        over_runs=MEDIAN,
        better="lower",
        table="phases",
        exported=Exported("phases", "real"),
    )


def _declare_part(of: Quantity, key: str, group: int) -> Quantity:
    """Declare the time of a step phase as a fraction of the step time."""

    def value(run: Measures) -> Value:
        seconds = of.compute(run)
        return seconds / run.phases.step if run.phases and isinstance(seconds, float) else None

    meaning = f"{of.meaning}; as a fraction of the step"
    return replace(of, key=key, unit="1", meaning=meaning, scale=PERCENT, run=value, group=group, exported=None)


def _declare_exposed(dimension: str) -> Quantity:
    def value(run: Measures) -> Value:
        totals = find_dimension(run, dimension)
        return totals.exposed_s if run.phases and totals else None

    return replace(
        STEP,
        key=f"exposed_{dimension.lower()}_s",
        head=f"exposed {dimension}",
        meaning="Time within the phases spent waiting for messages of this dimension",
        run=value,
        group=2,
        exported=None,
    )


STEP = replace(_declare_phase("step"), head="step ({unit})")
PHASES = tuple(map(_declare_phase, PARTS))
PARTS_OF_STEP = tuple(_declare_part(quantity, quantity.key.removesuffix("_s") + "_part", 1) for quantity in PHASES)
IDLE = replace(
    STEP,
    key="idle_part",
    head="idle",
    unit="1",
    meaning="Fraction of the passes in which a stage has nothing to compute",
    scale=PERCENT,
    run=lambda run: run.phases.idle if run.phases else None,
    group=1,
    exported=None,
)
IDLE_BY_SCHEDULE = replace(
    IDLE,
    key="idle_by_schedule",
    head="by schedule",
    meaning="Fraction of the passes in which a stage would have nothing to compute if the schedule were the only cause",
    run=lambda run: run.phases.idle_by_schedule if run.phases else None,
)
WAITING = tuple(map(_declare_exposed, DIMENSIONS))
WAITING_PARTS = tuple(_declare_part(quantity, quantity.key.removesuffix("_s") + "_part", 3) for quantity in WAITING)
TIMES = (*PHASES, STEP, *PARTS_OF_STEP, IDLE, IDLE_BY_SCHEDULE, *WAITING, *WAITING_PARTS)
