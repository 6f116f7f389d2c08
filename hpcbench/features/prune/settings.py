"""Settings of sparse weights: which weights are set to zero, how many, and when."""

import math
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from hpcbench.contract.section import Count, Feature

Pattern = Literal["2:4", "unstructured", "rows", "heads"]


class Prune(Feature):
    """Magnitude pruning: the weights of smallest magnitude become zero and stay zero."""

    pattern: Pattern = Field(
        description="2:4 keeps two of each four neighbours along the inputs of a matrix, unstructured the largest "
        "weights of each matrix, rows the largest neurons of each MLP, heads the largest heads of each attention.",
    )
    sparsity: float = Field(0.5, gt=0, lt=1, description="Final fraction of weights, neurons or heads that is zero.")
    begin: Count | None = Field(
        None, description="Number of updates before weights are first set to zero; by default warmup_steps, or 1."
    )
    end: Count | None = Field(
        None,
        description="Number of updates after which the full sparsity is reached; from begin on it grows along a cubic "
        "curve. By default begin: all at once.",
    )
    every: Count = Field(1, description="Number of updates between two selections of weights, from begin to end.")

    @model_validator(mode="after")
    def _settings_of_the_pattern(self) -> "Prune":
        if self.pattern == "2:4" and (self.sparsity != 0.5 or self.end is not None or self.every != 1):
            raise ValueError("2:4 makes exactly half of the weights zero, all at once: leave out sparsity, end, every")
        if self.begin is not None and self.end is not None and self.end < self.begin:
            raise ValueError(f"end {self.end} is before begin {self.begin}: raise it")
        if self.end is None and self.every != 1:
            raise ValueError("every is for a sparsity that grows: name end, or leave it out")
        return self

    def filled(self, warmup_steps: int) -> "Prune":
        """Return the settings with all values filled in."""
        return self if self.begin is not None else self.model_copy(update={"begin": max(1, warmup_steps)})

    def problem(self, *, steps: int, warmup_steps: int) -> str | None:
        """Return why a run of this length never has all the zeros; None if it has."""
        prune = self.filled(warmup_steps)
        begin, last = prune._first_and_last()
        if max(begin, last) > steps:
            return f"prune reaches its sparsity after {max(begin, last)} updates, and there are {steps}: lower it"
        if last < begin:
            return f"prune.end {last} is before prune.begin {begin}: raise it"
        if prune.first >= steps:
            return (
                f"prune never begins: it first sets weights to zero after update {prune.first}, and there are "
                f"{steps} steps, so that none trains with sparse weights: lower prune.begin, end or every"
            )
        return None

    def _first_and_last(self) -> tuple[int, int]:
        assert self.begin is not None, "filled fills it in"
        return self.begin, self.end or self.begin

    @property
    def first(self) -> int:
        """Updates after which the first weights become zero: at `begin` of a growing sparsity none are."""
        begin, end = self._first_and_last()
        return min(begin + self.every, end) if end > begin else end

    def due(self, updates: int) -> bool:
        """Return whether weights are chosen again after `updates` updates."""
        begin, end = self._first_and_last()
        if not begin <= updates <= end or not self.part(updates):
            return False
        return updates == end or (updates - begin) % self.every == 0

    def part(self, updates: int) -> Fraction:
        """Return the part that is to be zero after `updates` updates (arXiv 1710.01878, section 3).

        It grows from 0 at `begin` to `sparsity` at `end`, in steps of `every`, as 1 - (1 - progress)^3.
        """
        begin, end = self._first_and_last()
        whole = Fraction(str(self.sparsity))
        if updates < begin:
            return Fraction(0)
        if updates >= end:
            return whole
        progress = Fraction((updates - begin) // self.every * self.every, end - begin)
        return whole * (1 - (1 - progress) ** 3)

    def zeros(self, n: int, updates: int) -> int:
        """How many of `n` weights, neurons or heads are to be zero after so many updates: the nearest whole number."""
        return math.floor(n * self.part(updates) + Fraction(1, 2))


def _by_pattern(said: Any) -> Any:
    """Return the settings for a single word: a pattern, or none."""
    if not isinstance(said, str):
        return said
    return None if said == "none" else {"pattern": said}


Setting = Annotated[
    Prune | None, BeforeValidator(_by_pattern, json_schema_input_type=Pattern | Literal["none"] | Prune | None)
]
"""The type of `train.prune`."""
