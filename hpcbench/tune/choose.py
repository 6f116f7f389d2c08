"""Combinations of codecs, one per dimension: a knapsack that minimizes the predicted time within a loss budget.

Times and losses of dimensions add up, so the undominated combinations are built dimension by dimension, exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """One codec for one dimension."""

    codec: str
    seconds: float
    """Predicted change of the step time, as a fraction of the baseline's step."""
    loss: float
    """Predicted increase of the loss, as a fraction of the baseline's; 0 for lossless codecs."""


@dataclass(frozen=True)
class Combination:
    """A codec for each dimension, with the sums of predicted changes."""

    codecs: Mapping[str, str]
    seconds: float
    loss: float


Options = Mapping[str, Sequence[Option]]
"""Options of each dimension. One of them is ``none``."""


def list_undominated(options: Options, layers: int = 1) -> list[Combination]:
    """Return the combinations for which fewer than `layers` others are both as fast and as good, the fastest first."""
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


def choose_within(combinations: Sequence[Combination], budget: float) -> Combination | None:
    """Return the fastest combination whose predicted loss is within the budget; None if none is."""
    return min(
        (each for each in combinations if each.loss <= budget), key=lambda each: (each.seconds, each.loss), default=None
    )


def sum_options(options: Options, codecs: Mapping[str, str]) -> Combination:
    """Return the combination with these codecs. Dimensions that are not named have no codec."""
    picked = [
        choice
        for dimension, choices in options.items()
        for choice in choices
        if choice.codec == codecs.get(dimension, "none")
    ]
    named = {dimension: codecs.get(dimension, "none") for dimension in options}
    return Combination(named, sum(each.seconds for each in picked), sum(each.loss for each in picked))
