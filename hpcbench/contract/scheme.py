"""A scheme: the codec for each kind of traffic, and environment variables."""

import re
import shlex
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator, model_validator

from hpcbench.codecs import spec
from hpcbench.contract.section import Line, Name, Section, Variable
from hpcbench.contract.traffic import Traffic, possible
from hpcbench.contract.training import Optimizer

_STANDS_FOR = {"SP": "TP"}
"""Dimensions that another one includes.

Sequence parallelism cuts each all-reduce of tensor parallelism in two, so a rule for TP is for SP too.
"""


def check_codec(name: str) -> str:
    """The canonical name of a codec.

    Raises
    ------
    ValueError
        There is no such codec.
    """
    return spec.parse(name).name


_FIXED = (
    (
        r"PATH|LD_.*|PYTHON.*|VIRTUAL_ENV|BASH_ENV|ENV",
        "changes which programs and libraries run, not how they communicate",
    ),
    (r"HPCBENCH_.*", "is hpcbench's own"),
    (r"OMP_.*|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES", "follows from the site and the layout"),
)
"""Variables that must be the same in all runs of a comparison, and why."""


def check_environment(environment: dict[str, str]) -> dict[str, str]:
    """Check that a scheme may set these variables.

    Raises
    ------
    ValueError
        One of them would change more than the communication.
    """
    for name in environment:
        for pattern, reason in _FIXED:
            if re.fullmatch(pattern, name):
                raise ValueError(f"{name} {reason}: if all runs need it, set it in the site file")
    return environment


def assignments(environment: Mapping[str, str]) -> str:
    """A scheme's variables as assignments of a shell."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())


class Rule(Section):
    """A codec for the traffic that matches. A field that is left out matches everything."""

    dimension: Literal["DP", "ZERO", "TP", "SP", "CP", "EP", "PP"] | None = Field(
        None,
        description="DP: gradients; ZERO: gathered parameters; TP: tensor parallel, and what train.sequence_parallel "
        "makes of it, unless a later rule is for SP; CP: attention over ranks that share positions (layout.cp); EP: "
        "tokens on their way to experts and back; PP: between stages.",
    )
    phase: Literal["FORWARD", "BACKWARD", "STEP"] | None = Field(None, description="When the message is sent.")
    kind: Literal["GRAD", "ACT", "PARAM", "OPTIM"] | None = Field(
        None, description="Content of the message; OPTIM: momenta of 1-bit Adam."
    )
    axis: Literal["e", "i", "j", "k"] | None = Field(
        None,
        description="Axis of layout.tensor 2d, 2.5d or 3d: weights and their gradients travel over i and e, "
        "activations and theirs over j and k.",
    )
    codec: str = Field(description=f"Codec: one of {spec.KNOWN}.")
    feedback: bool = Field(
        False,
        description="Add the error of each message to the next one; for gradients and momenta (dimension DP) only. A "
        "lossless codec has no error, so that only messages in 16 bits have one: what they are rounded by.",
    )

    min_bytes: int = Field(
        0,
        ge=0,
        le=2**40,
        description="Messages with fewer bytes before the codec are not encoded. A collective counts by its whole "
        "vector, what goes to experts by the part for each rank.",
    )
    between_nodes: bool = Field(
        False,
        description="Encode only traffic between nodes: collectives use algorithm hierarchical, and traffic within a "
        "node is not encoded.",
    )

    _codec = field_validator("codec")(check_codec)

    @model_validator(mode="after")
    def _is_for_something(self) -> "Rule":
        if not any(self.matches(triple) for triple in possible()):
            near = {traffic[:3]: traffic for traffic in possible() if self.dimension in (None, traffic[0])}
            if self.axis:
                near = {traffic: traffic for traffic in possible() if self.axis in traffic[3:]}
            raise ValueError(
                f"there is no such traffic in any run: {self.dimension + ' has' if self.dimension else 'there is'} "
                f"{', '.join(map(' '.join, near))}"
            )
        return self

    @model_validator(mode="after")
    def _limits_are_of_a_codec(self) -> "Rule":
        if self.codec == "none" and (self.min_bytes or self.between_nodes):
            raise ValueError(
                "min_bytes and between_nodes say when a codec runs, and codec none never runs: leave them out"
            )
        return self

    @model_validator(mode="after")
    def _feedback_needs_a_sum(self) -> "Rule":
        if self.feedback and self.dimension != "DP":
            raise ValueError("feedback is for the reduction of gradients: write dimension: DP beside it")
        return self

    def matches(self, traffic: Traffic) -> bool:
        """Whether the rule is for the traffic. A field that is left out matches everything."""
        dimension, phase, kind, *axis = traffic
        return (
            self.dimension in (None, dimension, _STANDS_FOR.get(dimension))
            and self.phase in (None, phase)
            and self.kind in (None, kind)
            and self.axis in (None, *axis)
        )


class Scheme(Section):
    """A scheme: a codec for each kind of traffic. The last rule that matches applies."""

    algorithm: Literal[
        "encoded",
        "auto",
        "native",
        "two-shot",
        "hierarchical",
        "hierarchical-encoded",
        "ring",
        "doubling",
        "homomorphic",
    ] = Field(
        "encoded",
        description="encoded: the fastest of hpcbench's own, with all traffic between nodes encoded; auto: the same, "
        "or the MPI library's where a codec would lose time; native: the MPI library's, without codecs; the others: "
        "one of hpcbench's own, for the operations that it can do.",
    )
    default: str = Field("none", description=f"Codec where no rule matches: one of {spec.KNOWN}.")
    rules: list[Rule] = Field(default_factory=list, description="Exceptions to the default.")
    environment: dict[Variable, Line] = Field(
        default_factory=dict,
        description="Variables of this scheme's runs alone, taken literally: for MPI libraries that compress by "
        "themselves. What such a library sends is not known to hpcbench.",
    )
    optimizer: Optimizer | None = Field(
        None, description="Optimizer of this scheme's runs, in place of train.optimizer."
    )

    _default = field_validator("default")(check_codec)
    _environment = field_validator("environment")(check_environment)

    @model_validator(mode="after")
    def _native_is_plain(self) -> "Scheme":
        codecs = {self.default, *(rule.codec for rule in self.rules)}
        if self.algorithm == "native" and codecs != {"none"}:
            raise ValueError("algorithm native runs no codec: use encoded, or the codec none")
        if self.algorithm == "native" and any(rule.feedback for rule in self.rules):
            raise ValueError("algorithm native keeps no errors for feedback: use encoded, or leave feedback out")
        return self

    @model_validator(mode="after")
    def _environment_says_whose_collectives(self) -> "Scheme":
        if self.environment and "algorithm" not in self.model_fields_set:
            raise ValueError("environment needs algorithm beside it: native, for the MPI library's own collectives")
        return self

    @property
    def all_rules(self) -> list[Rule]:
        """All rules, with the default first, so that rule k stands at index k."""
        return [Rule(codec=self.default), *self.rules]


class _Named(Section):
    """The name that a run adds to a scheme. The fields of a second base class come first in files."""

    name: Name = Field(description="By which the study calls it.")


class NamedScheme(Scheme, _Named):
    """A scheme of a run, with its name."""
