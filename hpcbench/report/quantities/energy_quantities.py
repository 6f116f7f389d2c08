"""Quantities of energy: joules a sample and a step, and where they go."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hpcbench.contract.events import Energy as Event
from hpcbench.report.measures import Measures, counted
from hpcbench.report.quantities import GEOMETRIC, NUMBER, Average, Exported, Quantity, Value


def _of_one_scope(runs: Sequence[Measures], value: Callable[[Measures], Value]) -> Value:
    """Nothing where runs counted different things: joules of nodes and of GPUs have no mean."""
    scopes = {run.energy.scope for run in counted(runs) if run.energy}
    return GEOMETRIC.over(runs, value) if len(scopes) == 1 else None


JOULES_SAMPLE = Quantity(
    key="joules_per_sample",
    head="J/sample",
    label="J/sample",
    unit="J",
    meaning="Energy of a sequence, over the steps that count, of what the column of the scope says",
    scale=NUMBER,
    run=lambda run: run.energy.per_sample if run.energy else None,
    over_steps="mean of the steps",
    over_runs=Average(GEOMETRIC.words, _of_one_scope),
    better="lower",
    table="energy",
)
JOULES_STEP = replace(
    JOULES_SAMPLE,
    key="joules_per_step",
    head="J/step",
    label="",
    meaning="Energy of a step, over the steps that count, of what the column of the scope says",
    run=lambda run: run.energy.per_step if run.energy else None,
)
WATTS = replace(
    JOULES_STEP,
    key="watts",
    head="W",
    unit="W",
    meaning="Mean power over the steps that count, of what the column of the scope says",
    run=lambda run: run.energy.watts if run.energy else None,
    better="",
)


def _part(part: str, words: str) -> Quantity:
    return replace(
        JOULES_STEP,
        key=f"{part}_joules_per_step",
        head=f"J/step, {words}",
        meaning=f"Energy of a step that {words} took, whatever else was counted",
        run=lambda run: run.energy.parts.get(part) if run.energy else None,
        over_runs=GEOMETRIC,
        group=1,
    )


def _raw(part: str, words: str) -> Quantity:
    """What the export says of a run."""
    remark = "; in the counted steps, absent where a counter is missing or has a problem"
    return Quantity(
        key=f"{part}_joules",
        head=f"{part}_joules",
        unit="J",
        meaning=f"Energy that {words} took, all hosts together",
        exported=Exported("runs", "real", Event, remark=remark),
        of_schemes=False,
    )


_PARTS = {"node": "whole nodes", "gpu": "GPUs", "processor": "processors with their memory"}
ENERGY = (
    *(JOULES_SAMPLE, JOULES_STEP, WATTS),
    *(_part(part, words) for part, words in _PARTS.items()),
    *(_raw(part, words) for part, words in _PARTS.items()),
)
