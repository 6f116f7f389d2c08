"""Quantities of training that does not wait: how old its weights are, and how long ranks wait for each other."""

from dataclasses import replace

from hpcbench.report.measures import Measures
from hpcbench.report.quantities import COUNT, HIGHEST, MEDIAN, NUMBER, PERCENT, Quantity

STALENESS_MEAN = Quantity(
    key="staleness_mean",
    head="mean staleness",
    label="staleness",
    unit="1",
    meaning="Updates between the weights that a gradient was computed with and those it changed, a mean over the "
    "gradients of all stages or shards",
    scale=NUMBER,
    run=lambda run: run.ages.mean if run.ages else None,
    better="lower",
    table="synchrony",
    group=3,
)
STALENESS_MOST = replace(
    STALENESS_MEAN,
    key="staleness_most",
    head="most",
    meaning="The largest number of updates between the weights that a gradient was computed with and those it changed",
    scale=COUNT,
    run=lambda run: run.ages.most if run.ages else None,
    over_runs=HIGHEST,
)


def _waiting(run: Measures) -> float | None:
    return run.phases.waiting if run.phases else None


WAITING = Quantity(
    key="waiting_part",
    head="waiting",
    unit="1",
    meaning="Bubble: part of the passes in which a stage has nothing to compute; of replicas without stages, part of a "
    "step outside of the passes, in which a rank waits for gradients and weights, and updates",
    scale=PERCENT,
    run=_waiting,
    over_runs=MEDIAN,
    better="lower",
    table="synchrony",
    group=2,
)
STALENESS = (STALENESS_MEAN, STALENESS_MOST, WAITING)
