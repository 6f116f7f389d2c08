"""Settings of sparse weights: pattern, number and schedule of the zeros."""

import math
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from hpcbench.contract.section import Count, Feature

Pattern = Literal["2:4", "unstructured", "rows", "heads"]


class Prune(Feature):
    """Magnitude pruning: the weights with the smallest magnitudes are set to zero and stay zero."""

    pattern: Pattern = Field(
        description="2:4 keeps two of every four adjacent values along the inputs of a matrix; unstructured keeps "
        "the largest weights of each matrix; rows keeps the largest neurons of each MLP; heads keeps the "
        "largest attention heads.",
    )
    sparsity: float = Field(0.5, gt=0, lt=1, description="Final fraction of weights, neurons or heads that is zero.")
    begin: Count | None = Field(
        None, description="Number of updates before weights are first set to zero; by default warmup_steps, or 1."
    )
    end: Count | None = Field(
        None,
        description="Number of updates after which the full sparsity is reached. Between begin and end, sparsity grows "
        "along a cubic curve. By default the same as begin, so all weights are pruned in one step.",
    )
    every: Count = Field(1, description="Number of updates between two selections of weights, from begin to end.")

    @model_validator(mode="after")
    def _settings_of_the_pattern(self) -> "Prune":
        if self.pattern == "2:4" and (self.sparsity != 0.5 or self.end is not None or self.every != 1):
            raise ValueError(
                "2:4 sets exactly half of the weights to zero, all at once: leave out sparsity, end and every"
            )
        if self.begin is not None and self.end is not None and self.end < self.begin:
            raise ValueError(f"end {self.end} is before begin {self.begin}: raise end")
        if self.end is None and self.every != 1:
            raise ValueError("every requires a growing sparsity: set end, or leave every out")
        return self

    def fill_defaults(self, warmup_steps: int) -> "Prune":
        """Return the settings with all defaults filled in."""
        return self if self.begin is not None else self.model_copy(update={"begin": max(1, warmup_steps)})

    def problem(self, *, steps: int, warmup_steps: int) -> str | None:
        """Return the reason why a run of this length does not reach the target sparsity, or None if it does."""
        prune = self.fill_defaults(warmup_steps)
        begin, last = prune._first_and_last()
        if max(begin, last) > steps:
            return (
                f"prune reaches its sparsity after {max(begin, last)} updates, but there are only {steps} steps: "
                "lower prune.begin or prune.end"
            )
        if last < begin:
            return f"prune.end {last} is before prune.begin {begin}: raise prune.end"
        if prune.first >= steps:
            return (
                f"prune has no effect: weights are first set to zero after update {prune.first}, but there are "
                f"only {steps} steps: lower prune.begin, end or every"
            )
        return None

    def _first_and_last(self) -> tuple[int, int]:
        assert self.begin is not None, "fill_defaults sets it"
        return self.begin, self.end or self.begin

    @property
    def first(self) -> int:
        """Number of updates after which the first weights become zero.

        A gradually growing sparsity is still 0 at `begin`.
        """
        begin, end = self._first_and_last()
        return min(begin + self.every, end) if end > begin else end

    def is_due(self, updates: int) -> bool:
        """Return whether the zeros are selected again after `updates` updates."""
        begin, end = self._first_and_last()
        if not begin <= updates <= end or not self.compute_fraction(updates):
            return False
        return updates == end or (updates - begin) % self.every == 0

    def compute_fraction(self, updates: int) -> Fraction:
        """Compute the fraction of zeros after `updates` updates (arXiv 1710.01878, section 3).

        The fraction grows from 0 at `begin` to `sparsity` at `end` as ``sparsity * (1 - (1 - progress)^3)``. The
        fraction changes only after every `every` updates.
        """
        begin, end = self._first_and_last()
        sparsity = Fraction(str(self.sparsity))
        if updates < begin:
            return Fraction(0)
        if updates >= end:
            return sparsity
        progress = Fraction((updates - begin) // self.every * self.every, end - begin)
        return sparsity * (1 - (1 - progress) ** 3)

    def count_zeros(self, n: int, updates: int) -> int:
        """Compute the rounded number of zeros among `n` weights, neurons or heads after `updates` updates."""
        return math.floor(n * self.compute_fraction(updates) + Fraction(1, 2))


def _by_pattern(value: Any) -> Any:
    """Expand a pattern name, or ``none``, to settings."""
    if not isinstance(value, str):
        return value
    return None if value == "none" else {"pattern": value}


Setting = Annotated[
    Prune | None, BeforeValidator(_by_pattern, json_schema_input_type=Pattern | Literal["none"] | Prune | None)
]
"""Type of the setting `train.prune`."""
