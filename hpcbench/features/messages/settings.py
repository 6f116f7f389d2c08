"""Settings of message samples: the messages and the steps to sample."""

from pydantic import Field, model_validator

from hpcbench.contract.section import Count, Feature

MAX_STEPS = 100
"""Maximum number of sampled steps. Each rank writes one file per step."""


class MessageSamples(Feature):
    """Messages that ranks save before compression in selected steps."""

    steps: list[Count] = Field(
        min_length=1,
        max_length=MAX_STEPS,
        description="Steps whose messages are sampled, counted from 1, in ascending order: [20, 60].",
    )
    each: int = Field(2, ge=1, le=1000, description="Number of messages that a rank saves per channel and step.")
    ranks: Count = Field(8, description="Number of ranks that save messages, spread evenly over all ranks.")
    message_mb: float = Field(
        4.0, gt=0, le=1000, description="Maximum size of the saved beginning of a message, in MB (10^6 bytes)."
    )
    mb: float = Field(
        64.0, gt=0, le=100_000, description="Maximum size of the messages that a rank saves per step, in MB."
    )

    @model_validator(mode="after")
    def _check_steps(self) -> "MessageSamples":
        if sorted(set(self.steps)) != self.steps:
            raise ValueError(f"steps {self.steps} must be different and in ascending order, such as [20, 60]")
        if self.message_mb > self.mb:
            raise ValueError(
                f"message_mb {self.message_mb:g} is larger than mb {self.mb:g}: lower message_mb or raise mb"
            )
        return self

    def problem(self, *, steps: int, warmup_steps: int) -> str | None:
        """Return an error message if a sampled step is after the last step, else None."""
        last = self.steps[-1]
        return (
            f"keep_messages.steps ends with step {last}, but there are only {steps} steps: lower keep_messages.steps"
            if last > steps
            else None
        )
