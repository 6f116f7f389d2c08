"""Codec combinations, one codec per dimension: a knapsack problem that minimizes predicted time within a loss budget.

Times and losses are additive over dimensions, so the nondominated combinations are built exactly, one dimension at a
time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """Choice of a codec for one dimension."""

    codec: str
    seconds: float
    """Predicted change in step time, as a fraction of the baseline's step time."""
    loss: float
    """Predicted loss increase, as a fraction of the baseline's loss, or 0 for lossless codecs."""


@dataclass(frozen=True)
class Combination:
    """A codec for each dimension, and the sums of the predicted changes."""

    codecs: Mapping[str, str]
    seconds: float
    loss: float


Options = Mapping[str, Sequence[Option]]
"""Options of each dimension, including ``none``."""


def list_undominated(options: Options, layers: int = 1) -> list[Combination]:
    """Return the combinations that are dominated by fewer than `layers` others, sorted by time."""
    combinations = [Combination({}, 0.0, 0.0)]
    for dimension, choices in options.items():
        grown = [
            Combination(
                {**each.codecs, dimension: choice.codec}, each.seconds + choice.seconds, each.loss + choice.loss
            )
            for each in combinations
            for choice in choices
        ]
        combinations, fastest = [], list[float]()
        for each in sorted(grown, key=lambda each: (each.loss, each.seconds)):
            if len(fastest) < layers or each.seconds < fastest[-1]:
                combinations.append(each)
                fastest = sorted([*fastest, each.seconds])[:layers]
    return sorted(combinations, key=lambda each: (each.seconds, each.loss))


def sum_options(options: Options, codecs: Mapping[str, str]) -> Combination:
    """Return the combination with these codecs. Unnamed dimensions are uncompressed."""
    picked = [
        choice
        for dimension, choices in options.items()
        for choice in choices
        if choice.codec == codecs.get(dimension, "none")
    ]
    named = {dimension: codecs.get(dimension, "none") for dimension in options}
    return Combination(named, sum(each.seconds for each in picked), sum(each.loss for each in picked))
