"""Settings of codec effects: the codecs to measure, and the steps."""

from pydantic import Field, field_validator, model_validator

from hpcbench.codecs import spec
from hpcbench.contract.section import Count, Feature


class CodecEffects(Feature):
    """Codecs whose effect on the loss and on the weight update is measured after selected steps."""

    steps: list[Count] = Field(
        min_length=1,
        max_length=100,
        description="Steps after which the effects are measured, counted from 1, in ascending order: [20, 60].",
    )
    codecs: list[str] = Field(
        min_length=1,
        max_length=100,
        description=f"Codecs, each measured on each kind of traffic alone: {spec.FORMS}.",
    )

    @field_validator("codecs")
    @classmethod
    def _parse_codecs(cls, codecs: list[str]) -> list[str]:
        return list(dict.fromkeys(spec.parse(codec).name for codec in codecs))

    @model_validator(mode="after")
    def _check_steps(self) -> "CodecEffects":
        if sorted(set(self.steps)) != self.steps:
            raise ValueError(f"steps {self.steps} must be different and in ascending order, such as [20, 60]")
        return self

    def problem(self, *, steps: int, warmup_steps: int) -> str | None:
        """Return an error message if no step follows a measured step, else None."""
        last = self.steps[-1]
        return (
            f"codec_effects.steps ends with step {last}, which no step follows, because there are only {steps} steps: "
            "lower codec_effects.steps"
            if last >= steps
            else None
        )
