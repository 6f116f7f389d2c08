"""Constraints of codec effects on the model, training and layout settings."""

from collections.abc import Iterator

from hpcbench.contract.problems import FieldPath
from hpcbench.contract.section import Misfit
from hpcbench.contract.training import UNFLUSHED, Model, Train

CAN_BE_IDLE: tuple[FieldPath, ...] = ()
"""Settings that `list_idle_settings` may yield."""


def find_effects_misfit(model: Model, train: Train, tp: int, tensor: str) -> Misfit | None:
    """Return the first violated rule of codec effects, or None if all rules are met.

    A repeated step must not change the run. `find_optimizer_misfit` rejects the combination with 1-bit Adam, because
    the scheme selects the optimizer.
    """
    if train.codec_effects is None:
        return None
    why, without = "codec effects need steps that can be repeated: ", ", or leave train.codec_effects out"
    if train.sync != "all-reduce":
        return Misfit(("train", "sync"), f"{why}use sync all-reduce{without}")
    if train.schedule in UNFLUSHED:
        return Misfit(("train", "schedule"), f"{why}use schedule 1f1b{without}")
    if train.sparse_gradients != "never":
        return Misfit(("train", "sparse_gradients"), f"{why}set sparse_gradients to never{without}")
    return None


def list_idle_settings(train: Train) -> Iterator[tuple[FieldPath, str]]:
    """Yield the settings that have no effect: none."""
    yield from ()
