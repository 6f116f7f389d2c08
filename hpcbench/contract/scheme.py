"""A scheme: codecs for each kind of traffic, and settings of its runs' processes, such as environment variables."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hpcbench.codecs import spec
from hpcbench.contract.mixed_widths import explain_wrong_budget
from hpcbench.contract.process_changes import check_environment, check_preload, describe_changes, split_arguments
from hpcbench.contract.section import File, Line, Name, Section, Variable
from hpcbench.contract.traffic import Algorithm, Traffic, is_all_reduced, list_possible_traffic
from hpcbench.contract.training import Optimizer

_STANDS_FOR = {"SP": "TP"}
"""Dimensions to which the rules for another dimension also apply.

Sequence parallelism splits each tensor-parallel all-reduce into two operations, so TP rules include SP.
"""


def check_codec(name: str) -> str:
    """Return the canonical name of a codec.

    Raises
    ------
    ValueError
        The codec does not exist.
    """
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
            raise ValueError("min_bytes and between_nodes restrict a codec, but the codec is none: leave them out")
        return self

    @model_validator(mode="after")
    def _feedback_needs_a_sum(self) -> "Rule":
        lazy = (self.dimension, self.phase) == ("PP", "BACKWARD")
        if self.feedback and not (lazy or self.dimension == "DP"):
            raise ValueError(
                "feedback is for the reduction of gradients, and for gradients between pipeline stages: add "
                "`dimension: DP` to the rule, or `dimension: PP` and `phase: BACKWARD`"
            )
        field = "feedback_average" if self.feedback_average else "feedback_reset" if self.feedback_reset else None
        if field and not self.feedback:
            raise ValueError(f"{field} changes error feedback, which is off: add `feedback: true` to the rule")
        if field and self.kind == "OPTIM":
            raise ValueError(f"{field} is for gradients, not for the momenta of 1-bit Adam: leave {field} out")
        if field and lazy:
            raise ValueError(f"{field} is for sums of gradients, not for messages between stages: leave {field} out")
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
            raise ValueError("low_rank is for the reduction of gradients: write `dimension: DP`, without kind OPTIM")
        if self.low_rank and self.feedback:
            raise ValueError("low_rank feeds the error of its approximation back by itself: leave feedback out")
        return self

    @model_validator(mode="after")
    def _changes_need_activations(self) -> "Rule":
        if not self.sample_changes:
            return self
        if (self.dimension, self.phase) != ("PP", "FORWARD"):
            raise ValueError(
                "sample_changes is for activations between pipeline stages: write `dimension: PP` and `phase: FORWARD`"
            )
        if spec.parse(self.codec).lossless:
            raise ValueError(f"sample_changes reduces the error of a codec, but {self.codec} has none: leave it out")
        if self.min_bytes or self.between_nodes:
            raise ValueError("sample_changes needs every message encoded: leave min_bytes and between_nodes out")
        return self

    @model_validator(mode="after")
    def _widths_need_gradients(self) -> "Rule":
        if not self.mixed_bits:
            return self
        if self.dimension != "DP" or self.kind == "OPTIM":
            raise ValueError("mixed_bits is for the reduction of gradients: write `dimension: DP`, without kind OPTIM")
        for other in ("feedback", "low_rank", "min_bytes"):
            if getattr(self, other):
                raise ValueError(f"mixed_bits does not support {other}: leave {other} out")
        if wrong := explain_wrong_budget(self.codec, self.mixed_bits):
            raise ValueError(wrong)
        return self

    @model_validator(mode="after")
    def _differences_need_weights(self) -> "Rule":
        if self.differences and (self.dimension != "ZERO" or self.phase not in (None, "STEP")):
            raise ValueError(
                "differences is for weights that are gathered after each step: write `dimension: ZERO`, without phase "
                "FORWARD or BACKWARD"
            )
        if self.differences and spec.parse(self.codec).lossless:
            raise ValueError(
                f"differences reduces the error of a codec, but codec {self.codec} has none: leave differences out"
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


@dataclass(frozen=True)
class Treatment:
    """The codec, algorithm and feedback for messages of one kind of traffic."""

    codec: str
    algorithm: Algorithm
    feedback: bool = False
    """Whether the error of each message is added to the next message. The value is False if messages have no error."""
    min_bytes: int = 0
    between_nodes: bool = False
    low_rank: int = 0
    """Rank of the low-rank approximation of gradient matrices, or 0 to send gradients without approximation."""
    feedback_average: float = 0.0
    """Weight of the previous residual in the moving average of errors, or 0 for plain feedback."""
    feedback_reset: int = 0
    """Number of updates after which residuals are set to zero, or 0 for never."""
    differences: bool = False
    """Whether messages contain the changes of weights since the previous gather instead of the weights."""
    sample_changes: int = 0
    """Number of samples whose activations both stages keep, or 0 to send activations instead of changes."""
    rule: int = field(default=0, compare=False)
    """Index in `Scheme.all_rules`. Equality of treatments ignores this field."""
    mixed_bits: float = 0.0
    """Budget of mixed widths in bits per value, or 0 if widths are not mixed."""

    @property
    def is_random(self) -> bool:
        """Whether the codec uses stochastic or correlated rounding."""
        return self.codec.endswith((":stochastic", ":correlated"))

    @property
    def keeps_errors(self) -> bool:
        """Whether ranks keep the error of each message and add it to the next message."""
        return self.feedback or self.low_rank > 0

    @property
    def is_lossless(self) -> bool:
        """Whether the codec is lossless. The result is False for codecs from other packages."""
        return spec.parse(self.codec).lossless is True

    @property
    def refusal(self) -> str | None:
        """Why the algorithm does not support this treatment, and the remedy, or None if it does."""
        if self.algorithm is Algorithm.NATIVE and self.codec != "none":
            return (
                f"algorithm native runs no codec, but the codec is {self.codec}: use algorithm encoded, or codec none"
            )
        if self.algorithm is Algorithm.NATIVE and self.feedback:
            return "algorithm native keeps no errors for feedback: use algorithm encoded, or leave feedback out"
        if self.algorithm is Algorithm.HOMOMORPHIC and (spec.split(self.codec)[0] != "int8" or self.is_random):
            return (
                "algorithm homomorphic sums 8-bit integers, rounded to nearest: use codec int8 instead of "
                f"{self.codec}, or algorithm encoded"
            )
        if self.between_nodes and self.algorithm not in (Algorithm.AUTO, Algorithm.HIERARCHICAL):
            return f"between_nodes needs algorithm hierarchical or auto, not {self.algorithm.value}"
        return None

    def plain_because(self, nbytes: float, *, one_node: bool) -> str | None:
        """Return why a message is not encoded, or None if it is.

        The decision depends only on the unencoded size and the placement of the group, so all ranks make the same
        decision.
        """
        if self.codec == "none":
            return None
        if nbytes < self.min_bytes:
            return f"{nbytes} bytes, less than min_bytes {self.min_bytes}"
        return (
            "its ranks share a node, and only messages between nodes are encoded"
            if self.between_nodes and one_node
            else None
        )


_PROCESS_FIELDS = {"environment", "arguments", "preload", "setup"}
"""Fields of a scheme that change how the processes of its runs are started."""


@lru_cache(maxsize=256)
def _default_rule(codec: str) -> Rule:
    return Rule(codec=codec)


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
        "or the MPI library's where a codec would lose time; native: the MPI library's, without codecs; homomorphic: "
        "all-reduces of int8:B, and encoded for other operations and codec none; the others: that algorithm of "
        "hpcbench, for the operations that it supports.",
    )
    default: str = Field("none", description=f"Codec where no rule matches: one of {spec.FORMS}.")
    rules: list[Rule] = Field(
        default_factory=list, description="Exceptions to the default. The last rule that matches applies."
    )
    environment: dict[Variable, Line] = Field(
        default_factory=dict,
        description="Environment variables of this scheme's runs alone, taken literally: for libraries that compress "
        "by themselves. hpcbench does not see what such a library sends.",
    )
    arguments: Line = Field(
        "",
        description="Arguments of the program in this scheme's runs, in shell syntax: appended to its command, "
        "or placed at {arguments}. Only for programs.",
    )
    preload: File | None = Field(
        None,
        description="Shared library that this scheme's ranks load first (LD_PRELOAD), such as a collective library "
        "that compresses. Relative paths are relative to the directory of the study file. Each rank checks that the "
        "file exists.",
    )
    setup: list[Line] = Field(
        default_factory=list,
        max_length=100,
        description="Shell lines that each rank of this scheme's runs executes first, such as `module load`. A line "
        "that fails ends the run.",
    )
    optimizer: Optimizer | None = Field(
        None, description="Optimizer of this scheme's runs, instead of train.optimizer."
    )

    _default = field_validator("default")(check_codec)
    _environment = field_validator("environment")(check_environment)
    _preload = field_validator("preload")(check_preload)

    @field_validator("arguments")
    @classmethod
    def _has_words(cls, arguments: str) -> str:
        split_arguments(arguments)
        return arguments

    @model_validator(mode="before")
    @classmethod
    def _choose_algorithm(cls, data: Any) -> Any:
        """Choose the native algorithms if a scheme has no codec and only changes how processes are started."""
        names = data.keys() if isinstance(data, dict) else set()
        if names & _PROCESS_FIELDS and not names & {"algorithm", "default", "rules", "optimizer"}:
            return {**data, "algorithm": "native"}
        return data

    @model_validator(mode="after")
    def _algorithm_carries_out_each_rule(self) -> "Scheme":
        if refused := _find_refusal(Algorithm(self.algorithm), tuple(self.all_rules)):
            raise ValueError(f"{self.name_rule(refused.rule)}: {refused.refusal}")
        return self

    @property
    def process_changes(self) -> str:
        """Phrase that lists the variables, arguments, preloaded library, and setup lines of the scheme's runs."""
        return describe_changes(
            environment=self.environment, arguments=self.arguments, preload=self.preload, setup=self.setup
        )

    @property
    def all_rules(self) -> list[Rule]:
        """All rules, beginning with the default rule, so that rule k has index k."""
        return [_default_rule(self.default), *self.rules]

    def name_rule(self, k: int) -> str:
        """Return the name of rule `k` for error messages."""
        rule = self.all_rules[k]
        terms = " ".join(filter(None, (rule.dimension, rule.phase, rule.kind, rule.axis, rule.codec)))
        return f"rule {k} ({terms})" if k else f"the default ({terms})"

    @property
    def change_steps(self) -> list[int]:
        """The first step, and each later step in which a rule starts or stops applying, in ascending order."""
        return _list_change_steps(self.rules)

    def treatment(self, traffic: Traffic, *, half: bool = False, step: int | None = None) -> Treatment:
        """Resolve the treatment of a kind of traffic, from the last rule that matches and covers the step.

        Parameters
        ----------
        half
            Whether values are rounded to 16 bits before the codec, so that messages have an error even with a lossless
            codec.
        step
            Number of the step, from 1. None means any step after the last rule change.
        """
        return _resolve(Algorithm(self.algorithm), self.all_rules, traffic, half=half, step=step)

    def schedule(self, traffic: Traffic, *, half: bool = False) -> dict[int, Treatment]:
        """Return the treatments of a kind of traffic, keyed by the first step of each."""
        changes: dict[int, Treatment] = {}
        for step in self.change_steps:
            treatment = self.treatment(traffic, half=half, step=step)
            if not changes or treatment != changes[max(changes)]:
                changes[step] = treatment
        return changes


def _list_change_steps(rules: Sequence[Rule]) -> list[int]:
    begins = {rule.from_step for rule in rules}
    return sorted({1} | begins | {rule.until_step + 1 for rule in rules if rule.until_step is not None})


def _resolve(
    algorithm: Algorithm, rules: Sequence[Rule], traffic: Traffic, *, half: bool, step: int | None
) -> Treatment:
    if traffic[0] == "EXACT":
        return Treatment("none", Algorithm.NATIVE)
    k, rule = [(k, rule) for k, rule in enumerate(rules) if rule.matches(traffic) and rule.covers(step)][-1]
    if rule.between_nodes and algorithm is not Algorithm.AUTO:
        algorithm = Algorithm.HIERARCHICAL
    elif algorithm is Algorithm.HOMOMORPHIC and (rule.codec == "none" or not is_all_reduced(traffic)):
        algorithm = Algorithm.ENCODED
    feedback = rule.feedback and (half or spec.parse(rule.codec).lossless is not True)
    of_gradients = traffic[2] == "GRAD"
    averaging = (rule.feedback_average, rule.feedback_reset) if feedback and of_gradients else (0.0, 0)
    rank = rule.low_rank if of_gradients else 0
    return Treatment(
        *(rule.codec, algorithm, feedback, rule.min_bytes, rule.between_nodes, rank, *averaging),
        differences=rule.differences and traffic[:2] == ("ZERO", "STEP"),
        rule=k,
        sample_changes=rule.sample_changes if traffic[2] == "ACT" else 0,
        mixed_bits=rule.mixed_bits if of_gradients else 0.0,
    )


@lru_cache(1024)  # a copy of a run checks its scheme again, and a study has many runs of few schemes
def _find_refusal(algorithm: Algorithm, rules: tuple[Rule, ...]) -> Treatment | None:
    """Return the first treatment that the algorithm does not support, or None if it supports all treatments."""
    treatments = (
        _resolve(algorithm, rules, traffic, half=True, step=step)
        for step in _list_change_steps(rules)
        for traffic in list_possible_traffic()
    )
    return next((treatment for treatment in treatments if treatment.refusal), None)


class _Named(Section):
    """Base class with the name of a scheme.

    The class is used as the second base class, so that the name comes first in files.
    """

    name: Name = Field(description="Name of the scheme in the study.")


class NamedScheme(Scheme, _Named):
    """A scheme of a run, with its name."""
