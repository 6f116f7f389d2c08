"""Trace settings: the steps to trace."""

from pydantic import Field, model_validator

from hpcbench.contract.section import Count, Feature

MAX_STEPS = 1000
"""Maximum number of traced steps. All spans of a rank are written to one file."""


class Trace(Feature):
    """Steps to trace. Each rank writes the times of its computation, communication calls and codecs."""

    steps: list[Count] = Field(
        min_length=2, max_length=2, description="First and last traced step, counted from 1: [20, 25]."
    )

    @model_validator(mode="after")
    def _check_steps(self) -> "Trace":
        first, last = self.steps
        if not first <= last < first + MAX_STEPS:
            raise ValueError(
                f"steps {self.steps} must be the first and the last step of at most {MAX_STEPS} steps, such as [20, 25]"
            )
        return self

    def problem(self, *, steps: int, warmup_steps: int) -> str | None:
        """Return an error message if a traced step is after the last step, else None."""
        last = self.steps[1]
        return (
            f"trace.steps ends with step {last}, but there are only {steps} steps: lower trace.steps"
            if last > steps
            else None
        )
