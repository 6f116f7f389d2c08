"""Constraints of features on the model, training and layout settings."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hpcbench.contract.problems import FieldPath
from hpcbench.contract.section import Misfit
from hpcbench.contract.training import Model, Train
from hpcbench.features.effects import rules as effects
from hpcbench.features.prune import rules as prune


class Rules(NamedTuple):
    """Constraints of one feature.

    Attributes
    ----------
    misfit
        Function that returns the first violated rule. The arguments are the model settings, the training settings, and
        `tp` and `tensor` of the layout.
    idle
        Function that yields settings that have no effect, with the reason and the remedy.
    can_be_idle
        Settings that `idle` may yield.
    """

    misfit: Callable[[Model, Train, int, str], Misfit | None]
    idle: Callable[[Train], Iterator[tuple[FieldPath, str]]]
    can_be_idle: tuple[FieldPath, ...]


RULES = (
    Rules(prune.find_prune_misfit, prune.list_idle_settings, prune.CAN_BE_IDLE),
    Rules(effects.find_effects_misfit, effects.list_idle_settings, effects.CAN_BE_IDLE),
)
