"""Events about what a run was asked to do, and what follows from it."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.contract.event.base import Event


@dataclass(frozen=True, kw_only=True)
class Configuration(Event):
    """The run's file, and what follows from the file and the text."""

    NAME: ClassVar[str] = "configuration"
    run: dict[str, Any] | None
    """The run's ``run.json``."""
    parameters: int | None
    """Number of the model's parameters."""
    model_flops_per_sample: float | None
    """Operations that the model needs for one sequence, without recomputation.

    Experts keep as many tokens as they have places for: what the router chooses is not known before a step.
    """
    hardware_flops_per_sample: float | None
    """Operations that are executed for one sequence, with recomputation and empty places of experts."""
    neox_flops_per_sample: float | None
    """Operations for one sequence by GPT-NeoX's formula."""
    flops_formulas: dict[str, Any] | None
    """The three formulas in words, by the names ``model``, ``hardware`` and ``neox``."""
    corpus: str | None
    """Digest of the text."""
    corpus_tokens: dict[str, Any] | None
    """Tokens in each split of the text."""
    valid_loss_uniform: float | None
    """Validation loss of a model that guesses."""
    valid_loss_unigram: float | None
    """Validation loss of a model that knows only how often each token occurs."""
    unigram_tokens: int | None
    """Number of tokens that the counts of single tokens were taken over."""


@dataclass(frozen=True, kw_only=True)
class IdleRule(Event):
    """A rule of the scheme carries nothing in this run."""

    NAME: ClassVar[str] = "idle_rule"
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class WholeGradients(Event):
    """The embedding's gradient travels whole, although it might have travelled by rows where that is shorter."""

    NAME: ClassVar[str] = "whole_gradients"
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class SparseSwitch(Event):
    """Where the embedding's gradient is quicker by rows than whole, measured before the first step on all ranks."""

    NAME: ClassVar[str] = "sparse_switch"
    computed: float | None
    """The density of touched rows below which rows are fewer bytes; above 1, they always are."""
    measured: float | None
    """The density up to which rows are quicker; 0 if they never are, and 1 if they always are."""
    whole_s: float | None
    """Seconds of the whole gradient, as of all that follows on the slowest rank."""
    densities: tuple[float, ...] | None
    """The densities that were measured."""
    rows_s: tuple[float, ...] | None
    """Seconds of rows at each of them."""


@dataclass(frozen=True, kw_only=True)
class UnknownGroup(Event):
    """A group of a program's ranks has no known parallel dimension, so that its messages were never encoded."""

    NAME: ClassVar[str] = "unknown_group"
    group: str | None
    """Description of the group, as the program gives it."""
    bytes: int | None
    """Bytes that all ranks gave to its calls."""
    remedy: str | None
    """The line of the study that would give it a dimension."""


@dataclass(frozen=True, kw_only=True)
class VarianceFrozen(Event):
    """1-bit Adam has frozen its variances."""

    NAME: ClassVar[str] = "variance_frozen"
    step: int | None
    elements: int | None
    """Number of elements of the whole model."""
    without_gradient: int | None
    """Number of elements that had no gradient before the freeze. They never change."""
