"""A scheme: codecs for each kind of traffic, and settings of its runs' processes, such as environment variables."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hpcbench.codecs import spec
from hpcbench.contract.process_changes import check_environment, check_preload, describe_changes, split_arguments
from hpcbench.contract.rule import Rule, check_codec
from hpcbench.contract.section import File, Line, Name, Section, Variable
from hpcbench.contract.traffic import Algorithm, Traffic, is_all_reduced, list_possible_traffic
from hpcbench.contract.training import Optimizer
from hpcbench.contract.treatment import Treatment

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
