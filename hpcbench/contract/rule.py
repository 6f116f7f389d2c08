"""A rule of a scheme: a codec, and options, for the traffic that matches."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from hpcbench.codecs import spec
from hpcbench.contract.mixed_widths import explain_wrong_budget
from hpcbench.contract.section import Section
from hpcbench.contract.traffic import Traffic, list_possible_traffic

_STANDS_FOR = {"SP": "TP"}
"""Dimensions to which the rules for another dimension also apply.

Sequence parallelism splits each tensor-parallel all-reduce into two operations, so TP rules include SP.
"""


def check_codec(name: str) -> str:
    """Return the canonical name of a codec."""
    return spec.parse(name).name


class Rule(Section):
    """A codec for the traffic that matches these fields. An omitted field matches everything."""

    dimension: Literal["DP", "ZERO", "TP", "SP", "CP", "EP", "PP"] | None = Field(
        None,
        description="DP: gradients; ZERO: gathered parameters; TP: tensor parallelism, and sequence parallelism unless "
        "a later rule is for SP; CP: attention over ranks that share positions (layout.cp); EP: "
        "tokens on their way to experts and back; PP: between stages.",
    )
    phase: Literal["FORWARD", "BACKWARD", "STEP"] | None = Field(None, description="When the message is sent.")
    kind: Literal["GRAD", "ACT", "PARAM", "OPTIM"] | None = Field(
        None, description="Content of the message; OPTIM: momenta of 1-bit Adam."
    )
    axis: Literal["e", "i", "j", "k"] | None = Field(
        None,
        description="Axis of layout.tensor 2d, 2.5d or 3d. Axes i and e carry weights and their gradients, j and k "
        "activations and their gradients.",
    )
    codec: str = Field(description=f"Codec: one of {spec.FORMS}.")
    feedback: bool = Field(
        False,
        description="Error feedback: add the error of each message to the next one; only for gradients and momenta "
        "(dimension DP), and for gradients between pipeline stages (dimension PP, phase BACKWARD). With a lossless "
        "codec only the rounding of 16-bit messages leaves an error.",
    )
    feedback_average: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Weight of the previous residual in a moving average of errors (LoCo: 0.8); 0 for plain feedback.",
    )
    feedback_reset: int = Field(
        0, ge=0, le=2**40, description="Updates after which residuals become zero (LoCo: 1024); 0 for never."
    )
    low_rank: int = Field(
        0,
        ge=0,
        le=1024,
        description="Rank of PowerSGD's approximation of each gradient matrix; 0 for whole gradients. Only for "
        "gradients (dimension DP). The error is always added to the next gradient, and the codec encodes the factors.",
    )
    sample_changes: int = Field(
        0,
        ge=0,
        le=2**40,
        description="Send the change of each activation since its sample was last seen (AQ-SGD). Both stages keep the "
        "activations of this number of samples per boundary and replica; 0 sends activations. Only for activations "
        "between pipeline stages (dimension PP, phase FORWARD), and for samples that recur (data.samples).",
    )
    mixed_bits: float = Field(
        0.0,
        ge=0,
        le=16,
        description="Budget in bits per value of mixed widths (DynamiQ): 2, 4 or 8 bits for each 256 values, by their "
        "norms. 0 for the codec alone. Only for gradients (dimension DP) and codecs int4:B/256. The budget includes "
        "scales and the exchanged norms.",
    )
    differences: bool = Field(
        False,
        description="Send the change of weights since the previous gather instead of the weights (SDP4Bit). Only for "
        "gathered parameters (dimension ZERO) of train.zero 1 and 2, and for lossy codecs.",
    )
    min_bytes: int = Field(
        0,
        ge=0,
        le=2**40,
        description="Messages with fewer bytes before the codec are not encoded. A collective counts by its whole "
        "vector, a message to experts by the part for each rank.",
    )
    between_nodes: bool = Field(
        False,
        description="Encode only traffic between nodes: collectives use algorithm hierarchical, and traffic within a "
        "node is not encoded.",
    )
    from_step: int = Field(
        1,
        ge=1,
        le=2**40,
        description="First step to which the rule applies. Outside its steps, earlier rules apply, and the default.",
    )
    until_step: int | None = Field(
        None,
        ge=1,
        le=2**40,
        description="Last step to which the rule applies. Leave it out for all further steps. A last rule with codec "
        "none and until_step 100 is an uncompressed warm-up of 100 steps.",
    )

    _codec = field_validator("codec")(check_codec)

    @model_validator(mode="after")
    def _is_for_something(self) -> "Rule":
        if not any(self.matches(triple) for triple in list_possible_traffic()):
            near = {traffic[:3]: traffic for traffic in list_possible_traffic() if self.dimension in (None, traffic[0])}
            if self.axis:
                near = {traffic: traffic for traffic in list_possible_traffic() if self.axis in traffic[3:]}
            raise ValueError(
                f"no run has such traffic: {self.dimension + ' has' if self.dimension else 'there is'} only "
                f"{', '.join(map(' '.join, near))}"
            )
        return self

    @model_validator(mode="after")
    def _limits_are_of_a_codec(self) -> "Rule":
        if self.codec == "none" and (self.min_bytes or self.between_nodes):
            raise ValueError("`min_bytes` and `between_nodes` restrict a codec, but the codec is none: leave them out")
        return self

    @model_validator(mode="after")
    def _feedback_needs_a_sum(self) -> "Rule":
        lazy = (self.dimension, self.phase) == ("PP", "BACKWARD")
        if self.feedback and not (lazy or self.dimension == "DP"):
            raise ValueError(
                "`feedback` applies to the reduction of gradients and to gradients between pipeline stages: add "
                "`dimension: DP` to the rule, or `dimension: PP` and `phase: BACKWARD`"
            )
        field = "feedback_average" if self.feedback_average else "feedback_reset" if self.feedback_reset else None
        if field and not self.feedback:
            raise ValueError(f"`{field}` changes error feedback, which is off: add `feedback: true` to the rule")
        if field and self.kind == "OPTIM":
            raise ValueError(f"`{field}` applies to gradients, not to the momenta of 1-bit Adam: leave {field} out")
        if field and lazy:
            raise ValueError(
                f"`{field}` applies to sums of gradients, not to messages between stages: leave {field} out"
            )
        return self

    @model_validator(mode="after")
    def _has_steps(self) -> "Rule":
        if self.until_step is not None and self.until_step < self.from_step:
            raise ValueError(
                f"until_step {self.until_step} is before from_step {self.from_step}, so the rule applies to no step: "
                "raise until_step, or remove the rule"
            )
        return self

    def covers(self, step: int | None) -> bool:
        """Return whether the rule applies to messages of a step. None means any step after the last rule change."""
        if step is None:
            return self.until_step is None
        return self.from_step <= step and (self.until_step is None or step <= self.until_step)

    @model_validator(mode="after")
    def _rank_needs_gradients(self) -> "Rule":
        if self.low_rank and (self.dimension != "DP" or self.kind == "OPTIM"):
            raise ValueError(
                "`low_rank` applies to the reduction of gradients: write `dimension: DP`, without kind OPTIM"
            )
        if self.low_rank and self.feedback:
            raise ValueError("`low_rank` feeds the error of its approximation back by itself: leave feedback out")
        return self

    @model_validator(mode="after")
    def _changes_need_activations(self) -> "Rule":
        if not self.sample_changes:
            return self
        if (self.dimension, self.phase) != ("PP", "FORWARD"):
            raise ValueError(
                "`sample_changes` applies to activations between pipeline stages: write `dimension: PP` and "
                "`phase: FORWARD`"
            )
        if spec.parse(self.codec).lossless:
            raise ValueError(
                f"`sample_changes` reduces the error of a codec, but {self.codec} is lossless: leave sample_changes out"
            )
        if self.min_bytes or self.between_nodes:
            raise ValueError(
                "`sample_changes` requires that every message is encoded: leave min_bytes and between_nodes out"
            )
        return self

    @model_validator(mode="after")
    def _widths_need_gradients(self) -> "Rule":
        if not self.mixed_bits:
            return self
        if self.dimension != "DP" or self.kind == "OPTIM":
            raise ValueError(
                "`mixed_bits` applies to the reduction of gradients: write `dimension: DP`, without kind OPTIM"
            )
        for other in ("feedback", "low_rank", "min_bytes"):
            if getattr(self, other):
                raise ValueError(f"`mixed_bits` does not support {other}: leave {other} out")
        if wrong := explain_wrong_budget(self.codec, self.mixed_bits):
            raise ValueError(wrong)
        return self

    @model_validator(mode="after")
    def _differences_need_weights(self) -> "Rule":
        if self.differences and (self.dimension != "ZERO" or self.phase not in (None, "STEP")):
            raise ValueError(
                "`differences` applies only to weights that are gathered after each step: write `dimension: ZERO`, "
                "without phase FORWARD or BACKWARD"
            )
        if self.differences and spec.parse(self.codec).lossless:
            raise ValueError(
                f"`differences` reduces the error of a codec, but codec {self.codec} is lossless: leave differences out"
            )
        return self

    def matches(self, traffic: Traffic) -> bool:
        """Return whether the rule applies to the traffic. Omitted fields match everything."""
        dimension, phase, kind, *axis = traffic
        return (
            self.dimension in (None, dimension, _STANDS_FOR.get(dimension))
            and self.phase in (None, phase)
            and self.kind in (None, kind)
            and self.axis in (None, *axis)
        )
