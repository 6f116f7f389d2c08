"""Report quantities for asynchronous training: staleness of weights, and waiting time of ranks."""

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
    meaning="Number of updates between the weights that a gradient was computed with and the weights that it changed; "
    "mean over the gradients of all stages or shards",
    scale=NUMBER,
    run=lambda run: gradients.mean if (gradients := run.extract(count_ages)) else None,
    better="lower",
    table="synchrony",
    group=3,
)
STALENESS_MOST = replace(
    STALENESS_MEAN,
    key="staleness_most",
    head="most",
    meaning="The largest number of updates between the weights that a gradient was computed with and the weights that "
    "it changed",
    scale=COUNT,
    run=lambda run: gradients.most if (gradients := run.extract(count_ages)) else None,
    over_runs=HIGHEST,
)
WAITING = Quantity(
    key="waiting_part",
    head="waiting",
    unit="1",
    meaning="Bubble: fraction of the passes in which a stage has nothing to compute. Without stages: fraction of a "
    "step outside the passes, in which a rank waits for gradients and weights, and updates its weights",
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
    """Number of gradients by staleness.

    Staleness is the number of updates between the weights used to compute a gradient and the weights that the
    gradient updates.
    """

    counts: Mapping[int, int]
    """Number of gradients by staleness, in ascending order of staleness, without zero counts."""

    @property
    def total(self) -> int:
        """Total number of gradients."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        """Mean staleness of a gradient."""
        return sum(age * count for age, count in self.counts.items()) / self.total

    @property
    def most(self) -> int:
        """Largest staleness of a gradient."""
        return max(self.counts)

    @property
    def parts(self) -> dict[int, float]:
        """Fraction of gradients by staleness."""
        return {age: count / self.total for age, count in self.counts.items()}


def count_ages(log: RunLog) -> Ages | None:
    """Return the number of gradients by staleness, from the ``staleness`` event, over all stages or shards.

    The result is None if the event is missing or invalid.
    """
    totals: Counter[int] = Counter()
    for place in log.read_event(events.Staleness).places or ():
        counts = place.by_age()
        if counts is None:
            return None
        totals.update(counts)
    return _sort_counts(totals)


def _sort_counts(counts: Mapping[int, int]) -> Ages | None:
    """Sort counts by staleness, or return None if there are no gradients or too many."""
    positive = {age: counts[age] for age in sorted(counts) if counts[age]}
    return Ages(positive) if 0 < sum(positive.values()) < _LARGEST else None


def add_ages(runs: Iterable[Measures]) -> Ages | None:
    """Add up the gradient counts of several runs by staleness, or return None if no run counts gradients."""
    counts: Counter[int] = Counter()
    for run in runs:
        counts_of_run = run.extract(count_ages)
        counts.update(counts_of_run.counts if counts_of_run else {})
    return _sort_counts(counts)


_MOST = 8
"""Number of staleness values that are listed individually. Higher values are listed together."""


def describe_ages(parts: Mapping[int, float]) -> str:
    """Describe which share of the gradients has which staleness."""
    parts_shown = [f"{age}: {percent(part)}" for age, part in list(parts.items())[:_MOST]]
    older = list(parts.items())[_MOST:]
    if older:
        parts_shown.append(f"{older[0][0]} to {older[-1][0]}: {percent(sum(part for _, part in older))}")
    return ", ".join(parts_shown)
