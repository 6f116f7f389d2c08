"""Training that does not wait: how old the weights are that gradients are computed with, and how long ranks wait."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.present.notation import percent
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
    run=lambda run: found.mean if (found := run.said(ages)) else None,
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
    run=lambda run: found.most if (found := run.said(ages)) else None,
    over_runs=HIGHEST,
)
WAITING = Quantity(
    key="waiting_part",
    head="waiting",
    unit="1",
    meaning="Bubble: part of the passes in which a stage has nothing to compute; of replicas without stages, part of a "
    "step outside of the passes, in which a rank waits for gradients and weights, and updates",
    scale=PERCENT,
    run=lambda run: run.phases.waiting if run.phases else None,
    over_runs=MEDIAN,
    better="lower",
    table="synchrony",
    group=2,
)
STALENESS = (STALENESS_MEAN, STALENESS_MOST, WAITING)

_LARGEST = 1 << 62


@dataclass(frozen=True)
class Ages:
    """Gradients by their staleness: updates between the weights they were computed with and those they changed."""

    counts: Mapping[int, int]
    """One gradient or more, by staleness in rising order."""

    @property
    def total(self) -> int:
        """Number of gradients."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        """Mean staleness of a gradient."""
        return sum(age * count for age, count in self.counts.items()) / self.total

    @property
    def most(self) -> int:
        """The largest staleness of a gradient."""
        return max(self.counts)

    @property
    def parts(self) -> dict[int, float]:
        """Parts of all gradients, by staleness."""
        return {age: count / self.total for age, count in self.counts.items()}


def ages(log: RunLog) -> Ages | None:
    """Return the gradients of all stages or shards, by the ``staleness`` event.

    None where the log does not speak of any, or not sensibly.
    """
    found: Counter[int] = Counter()
    for place in log.said(events.Staleness).places or ():
        counts = place.by_age()
        if counts is None:
            return None
        found.update(counts)
    return _of_counts(found)


def _of_counts(counts: Mapping[int, int]) -> Ages | None:
    """Ages of some gradients; None of none."""
    known = {age: counts[age] for age in sorted(counts) if counts[age]}
    return Ages(known) if 0 < sum(known.values()) < _LARGEST else None


def together(runs: Iterable[Measures]) -> Ages | None:
    """Return the gradients of several runs; None where none counts them."""
    counts: Counter[int] = Counter()
    for run in runs:
        own = run.said(ages)
        counts.update(own.counts if own else {})
    return _of_counts(counts)


_MOST = 8
"""Ages that are told one by one; older weights are told together."""


def histogram(parts: Mapping[int, float]) -> str:
    """Parts of the gradients by staleness, in words."""
    told = [f"{age}: {percent(part)}" for age, part in list(parts.items())[:_MOST]]
    rest = list(parts.items())[_MOST:]
    if rest:
        told.append(f"{rest[0][0]} to {rest[-1][0]}: {percent(sum(part for _, part in rest))}")
    return ", ".join(told)
