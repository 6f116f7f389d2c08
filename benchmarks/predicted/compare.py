"""Predicted beside measured: errors, the order of schemes, bytes and memory."""

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
    """One scheme of one study."""

    study: str
    scheme: str
    predicted: float
    measured: tuple[float, ...]
    """Seconds of a step in each repeat."""
    low: float = 0.0
    high: float = 0.0
    """The interval that was predicted."""

    @property
    def held(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.low <= self.middle <= self.high

    @property
    def middle(self) -> float:
        """The median of the repeats."""
        return statistics.median(self.measured)

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.middle - 1


@dataclass(frozen=True)
class Order:
    """Pairs of schemes of one study."""

    pairs: int
    told: int
    """Pairs that the measurement tells apart: the repeats of one are all faster than those of the other."""
    right: int
    """Pairs whose order was predicted."""


def order(cells: Sequence[Cell]) -> Order:
    """Compare each two schemes of each study."""
    pairs = told = right = 0
    for a, b in combinations(cells, 2):
        if a.study != b.study:
            continue
        pairs += 1
        if max(a.measured) < min(b.measured) or max(b.measured) < min(a.measured):
            told += 1
            right += (a.predicted < b.predicted) == (a.middle < b.middle)
    return Order(pairs, told, right)


def summary(errors: Iterable[float]) -> str:
    """Mean and worst size, and the median with its sign, in percent."""
    found = list(errors)
    sizes = [abs(error) * 100 for error in found]
    middle = 100 * statistics.median(found)
    return f"mean {statistics.mean(sizes):.1f} %, median {middle:+.1f} %, worst {max(sizes):.1f} %"


def drift(now: Sequence[Sequence[float]], before: Sequence[Sequence[float]]) -> str:
    """How many times as long the same runs took: no prediction is nearer than the machine is to itself."""
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(now, before, strict=True)]
    return (
        f"the same runs took {statistics.mean(ratios):.2f} times as long as before in the mean, "
        f"{min(ratios):.2f} to {max(ratios):.2f} times"
    )


def bytes_differ(run: Run, traffic: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Dimensions of a run whose message bytes, of all ranks in a step, are not those of the volume model."""
    expected = Counter[str]()
    per_node = run.shape.ranks_per_node if run.shape else None
    for key, nbytes in volume.count_all_ranks_bytes(run.model, run.train, run.layout, node_ranks=per_node).items():
        expected[str(key[0])] += nbytes
    found = {name: round(one["message_bytes"]) for name, one in traffic.items()}
    return [
        f"{name}: {found.get(name, 0)} counted, {expected.get(name, 0)} predicted"
        for name in sorted({*expected, *found})
        if expected.get(name, 0) != found.get(name, 0)
    ]
