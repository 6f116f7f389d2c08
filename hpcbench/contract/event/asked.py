"""Events about run settings and the quantities derived from them."""

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event


@dataclass(frozen=True, kw_only=True)
class Configuration(Event):
    """The run file, and quantities derived from the run file and the text."""

    NAME: ClassVar[str] = "configuration"
    run: dict[str, Any] | None
    """The run's ``run.json``."""
    parameters: int | None
    """Number of parameters of the model."""
    model_flops_per_sample: float | None
    """Floating-point operations that the model needs for one sequence, without recomputation.

    Experts are counted at their full capacity, because the choices of the router are not known before a step.
    """
    hardware_flops_per_sample: float | None
    """Floating-point operations executed for one sequence, including recomputation and unused capacity of experts."""
    neox_flops_per_sample: float | None
    """Floating-point operations for one sequence, according to the formula of GPT-NeoX."""
    flops_formulas: dict[str, Any] | None
    """The three formulas in words, keyed by the names ``model``, ``hardware`` and ``neox``."""
    corpus: str | None
    """Digest of the text."""
    corpus_tokens: dict[str, Any] | None
    """Tokens in each split of the text."""
    valid_loss_uniform: float | None
    """Validation loss of a model that gives all tokens the same probability."""
    valid_loss_unigram: float | None
    """Validation loss of a model that uses only the frequency of each token."""
    unigram_tokens: int | None
    """Number of tokens in which the token frequencies were counted."""

    @classmethod
    def of_program(cls, run: dict[str, Any]) -> "Configuration":
        """Make the event of another training program from its run file. The program's model and text are unknown."""
        unknown: dict[str, Any] = dict.fromkeys(
            each.name for each in fields(cls) if each.init and each.default is MISSING
        )
        return cls(**{**unknown, "run": run})


@dataclass(frozen=True, kw_only=True)
class IdleRule(Event):
    """A rule of the scheme that applies to no message of this run."""

    NAME: ClassVar[str] = "idle_rule"
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class WholeGradients(Event):
    """Notice that the embedding's complete gradient is sent, although `sparse_gradients` requests rows."""

    NAME: ClassVar[str] = "whole_gradients"
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class SparseSwitch(Event):
    """Density below which rows of the embedding's gradient are faster, measured before the first step on all ranks."""

    NAME: ClassVar[str] = "sparse_switch"
    computed: float | None
    """Density of touched rows below which sending rows takes fewer bytes.

    If the value exceeds 1, rows always take fewer bytes.
    """
    measured: float | None
    """Density up to which sending rows is faster: 0 if rows are never faster, and 1 if they always are."""
    whole_s: float | None
    """Seconds to send the whole gradient, on the slowest rank."""
    densities: tuple[float, ...] | None
    """Densities that were measured."""
    rows_s: tuple[float, ...] | None
    """Seconds to send rows at each of the measured densities, on the slowest rank."""


@dataclass(frozen=True, kw_only=True)
class UnknownGroup(Event):
    """A process group of a program whose parallel dimension is not known. Messages of the group were never encoded."""

    NAME: ClassVar[str] = "unknown_group"
    group: str | None
    """Description of the group in the program."""
    bytes: int | None
    """Bytes of all tensors in the group's calls, on all ranks."""
    remedy: str | None
    """Line that assigns a dimension to the group when it is added to the study."""


@dataclass(frozen=True, kw_only=True)
class VarianceFrozen(Event):
    """The step in which 1-bit Adam froze its variances."""

    NAME: ClassVar[str] = "variance_frozen"
    step: int | None
    elements: int | None
    """Number of elements of the whole model."""
    without_gradient: int | None
    """Number of elements that had no gradient before the freeze. These elements never change afterwards."""
