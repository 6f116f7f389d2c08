"""How old the weights were that a run's gradients were computed with: from its ``staleness`` event."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events

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
    """The gradients of all stages or shards; None where the log does not speak of any, or not sensibly."""
    found: Counter[int] = Counter()
    for place in log.said(events.Staleness).places or ():
        counts = place.by_age()
        if counts is None:
            return None
        found.update(counts)
    return of_counts(found)


def of_counts(counts: Mapping[int, int]) -> Ages | None:
    """Ages of some gradients; None of none."""
    known = {age: counts[age] for age in sorted(counts) if counts[age]}
    return Ages(known) if 0 < sum(known.values()) < _LARGEST else None
