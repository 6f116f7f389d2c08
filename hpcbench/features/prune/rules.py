"""Constraints of sparse weights on the model, training and layout settings."""

import math
from collections.abc import Iterator
from fractions import Fraction

from hpcbench.contract.problems import FieldPath
from hpcbench.contract.section import Misfit
from hpcbench.contract.training import UNFLUSHED, Model, Train
from hpcbench.features.prune.settings import Prune


def resolve_pruning(train: Train) -> Prune | None:
    """Return the pruning settings with all defaults filled in, or None if the weights stay dense."""
    return train.prune and train.prune.fill_defaults(train.warmup_steps)


def find_prune_misfit(model: Model, train: Train, tp: int, tensor: str) -> Misfit | None:
    """Return the first violated rule of sparse weights, or None if all rules are met.

    The combination with 1-bit Adam is rejected by `find_optimizer_misfit`, because the scheme selects the optimizer.
    """
    prune = resolve_pruning(train)
    if prune is None:
        return None
    why = "sparse weights do not support "
    without = ", or leave train.prune out"
    if tensor != "1d":
        return Misfit(("layout", "tensor"), f"{why}tensor grids: use 1d{without}")
    if model.experts is not None:
        return Misfit(("model", "experts"), f"{why}experts: use a model without experts{without}")
    if train.schedule in UNFLUSHED:
        return Misfit(("train", "schedule"), f"{why}{train.schedule}: use 1f1b{without}")
    if train.sync != "all-reduce":
        return Misfit(("train", "sync"), f"{why}sync {train.sync}: use all-reduce{without}")
    if train.node_copy:
        return Misfit(("train", "node_copy"), f"{why}a second copy within nodes: set node_copy to false{without}")
    if train.sparse_gradients != "never":
        return Misfit(
            ("train", "sparse_gradients"), f"{why}gradients sent as rows: set sparse_gradients to never{without}"
        )
    if prune.pattern in ("rows", "heads") and (model.gated or model.groups < model.heads or not model.bias):
        return Misfit(
            ("train", "prune"),
            f"pattern {prune.pattern} does not support gated MLPs, grouped heads or layers without biases: use "
            f"unstructured or 2:4{without}",
        )
    if prune.pattern == "2:4" and model.middle % (4 * tp):
        return Misfit(
            ("train", "prune"),
            f"2:4 needs groups of four on one rank, but the MLP's width {model.middle} is not a multiple of 4 x "
            f"layout.tp = {4 * tp}: use another pattern, or a width of {-(-model.middle // (4 * tp)) * 4 * tp}",
        )
    if prune.pattern == "2:4" and model.hidden % (4 * tp):
        return Misfit(
            ("train", "prune"),
            f"2:4 needs groups of four on one rank, but model.hidden {model.hidden} is not a multiple of 4 x "
            f"layout.tp = {4 * tp}: use another pattern, or a hidden of {-(-model.hidden // (4 * tp)) * 4 * tp}",
        )
    units = {"heads": model.heads, "rows": model.middle, "2:4": 4}.get(prune.pattern, model.hidden**2)
    wanted = math.floor(units * Fraction(str(prune.sparsity)) + Fraction(1, 2))
    if not 0 < wanted < units:
        return Misfit(
            ("train", "prune"),
            f"a sparsity of {prune.sparsity:g} makes {wanted} of {units} {prune.pattern} zero: use a value between "
            f"{1 / units:g} and {1 - 1 / units:g}",
        )
    return None


CAN_BE_IDLE: tuple[FieldPath, ...] = (("train", "prune", "every"),)
"""Settings that `list_idle_settings` may yield."""


def list_idle_settings(train: Train) -> Iterator[tuple[FieldPath, str]]:
    """Yield the settings that have no effect, with the reason and the remedy."""
    prune = resolve_pruning(train)
    if prune and prune.end is not None and prune.every > prune.end - (prune.begin or 0):
        yield (
            ("train", "prune", "every"),
            f"there are fewer than {prune.every} updates from begin {prune.begin} to end {prune.end}, so the full "
            "sparsity is reached at once: lower every, or leave end and every out",
        )
