"""Comparison of predictions with measurements: errors, the order of schemes, bytes, and memory."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hpcbench.contract.run import Run
from hpcbench.predict import volume


@dataclass(frozen=True)
class Cell:
    """Predicted and measured times of one scheme of a study."""

    study: str
    scheme: str
    predicted: float
    measured: tuple[float, ...]
    """Step time of each repeat, in seconds."""
    low: float = 0.0
    high: float = 0.0
    """Predicted interval."""

    @property
    def held(self) -> bool:
        """Whether the interval contains the measured median."""
        return self.low <= self.middle <= self.high

    @property
    def middle(self) -> float:
        """Median of the repeats."""
        return statistics.median(self.measured)

    @property
    def error(self) -> float:
        """Relative error of the predicted time."""
        return self.predicted / self.middle - 1


@dataclass(frozen=True)
class Order:
    """Counts of pairs of schemes whose order was predicted."""

    pairs: int
    distinct: int
    """Pairs that the measurement separates: all repeats of one scheme are faster than all repeats of the other."""
    right: int
    """Distinct pairs whose order was predicted correctly."""


def order(cells: Sequence[Cell]) -> Order:
    """Compare each pair of schemes of each study."""
    pairs = distinct = right = 0
    for a, b in combinations(cells, 2):
        if a.study != b.study:
            continue
        pairs += 1
        if max(a.measured) < min(b.measured) or max(b.measured) < min(a.measured):
            distinct += 1
            right += (a.predicted < b.predicted) == (a.middle < b.middle)
    return Order(pairs, distinct, right)


def summary(errors: Iterable[float]) -> str:
    """Format the mean and largest error, and the signed median, in percent."""
    values = list(errors)
    sizes = [abs(error) * 100 for error in values]
    middle = 100 * statistics.median(values)
    return f"mean {statistics.mean(sizes):.1f} %, median {middle:+.1f} %, worst {max(sizes):.1f} %"


def drift(now: Sequence[Sequence[float]], before: Sequence[Sequence[float]]) -> str:
    """Compare the times of the same runs in two measurements.

    The difference between the two measurements limits the accuracy of any prediction.
    """
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(now, before, strict=True)]
    return (
        f"the same runs took {statistics.mean(ratios):.2f} times as long as before in the mean, "
        f"{min(ratios):.2f} to {max(ratios):.2f} times"
    )


def bytes_differ(run: Run, traffic: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """List the dimensions of a run whose message bytes, summed over ranks, differ from the volume model."""
    expected = Counter[str]()
    per_node = run.shape.ranks_per_node if run.shape else None
    for key, nbytes in volume.count_all_ranks_bytes(run.model, run.train, run.layout, node_ranks=per_node).items():
        expected[str(key[0])] += nbytes
    values = {name: round(totals["message_bytes"]) for name, totals in traffic.items()}
    return [
        f"{name}: {values.get(name, 0)} counted, {expected.get(name, 0)} predicted"
        for name in sorted({*expected, *values})
        if expected.get(name, 0) != values.get(name, 0)
    ]
