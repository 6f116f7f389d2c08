"""Criteria in a study: margins for comparisons with the baseline, and bounds for individual quantities."""

from typing import Literal

from pydantic import Field, model_validator

from hpcbench.contract.section import Name, Scalar, Section

Quantity = Literal[
    "samples_per_s",
    "tokens_per_s",
    "step_seconds",
    "tflops",
    "mfu",
    "loss",
    "wire_over_message",
    "speed_ratio",
    "loss_difference",
]


class Criteria(Section):
    """Margins for comparing a scheme with the baseline."""

    speed_margin: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="A scheme is not faster if its relative gain in speed is significantly less than this fraction.",
    )
    loss_margin: float = Field(
        0.01,
        ge=0,
        description="A loss is no worse if it differs from the baseline's by significantly less than this fraction.",
    )


class QuantityBound(Section):
    """A bound for one quantity. The bound applies to the runs that `scheme` and `cell` select, by default to all runs.

    Without `confidence`, each run must satisfy the bound. With `confidence`, the mean over the runs of each scheme and
    cell is tested, and the bound is met, violated or inconclusive.
    """

    quantity: Quantity = Field(
        description="samples_per_s, tokens_per_s; step_seconds: mean after the warm-up; tflops: the model's, a GPU "
        "or rank; mfu: as a fraction of 1; loss: validation loss at the end; wire_over_message; speed_ratio and "
        "loss_difference: against the baseline's run of the same repeat."
    )
    min: float | None = Field(None, description="Smallest accepted value.")
    max: float | None = Field(None, description="Largest accepted value.")
    reference: float | None = Field(
        None, gt=0, description="Reference value, for example of the accepted machine: min and max are fractions of it."
    )
    confidence: float | None = Field(
        None,
        ge=0.5,
        lt=1,
        description="Confidence with which the mean over the runs of a scheme and cell must keep the bound, "
        "for example 0.95. It needs two repeats or more. Default: each run must keep the bound.",
    )
    scheme: Name | None = Field(None, description="Only runs of this scheme.")
    cell: dict[str, Scalar] = Field(default_factory=dict, description="Only runs with these values of matrix keys.")

    @model_validator(mode="after")
    def _bounds(self) -> "QuantityBound":
        if self.min is None and self.max is None:
            raise ValueError("sets no bound: give min, max or both")
        if self.reference is not None and self.quantity in ("speed_ratio", "loss_difference"):
            raise ValueError(
                f"reference: has no meaning for {self.quantity}, which is relative to the baseline: leave reference out"
            )
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"no value lies between min {self.min:g} and max {self.max:g}: swap them")
        return self

    @property
    def lowest(self) -> float | None:
        """Smallest accepted value, in the unit of the quantity."""
        return None if self.min is None else self.min * (self.reference or 1)

    @property
    def highest(self) -> float | None:
        """Largest accepted value, in the unit of the quantity."""
        return None if self.max is None else self.max * (self.reference or 1)

    def concerns(self, scheme: str, cell: dict[str, Scalar]) -> bool:
        """Return whether the bound applies to runs of this scheme and cell."""
        return self.scheme in (None, scheme) and all(
            key in cell and cell[key] == value for key, value in self.cell.items()
        )
