"""The rules that features set for a model, its training and its layout."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hpcbench.contract.problems import FieldPath
from hpcbench.contract.section import Misfit
from hpcbench.contract.training import Model, Train
from hpcbench.features.prune import rules as prune


class Rules(NamedTuple):
    """The rules of a feature.

    Attributes
    ----------
    misfit
        Function of a model, its training, and `tp` and `tensor` of the layout that returns the first broken rule.
    idle
        Function that yields settings without an effect, with the reason and the remedy.
    can_be_idle
        Settings that `idle` may yield.
    """

    misfit: Callable[[Model, Train, int, str], Misfit | None]
    idle: Callable[[Train], Iterator[tuple[FieldPath, str]]]
    can_be_idle: tuple[FieldPath, ...]


RULES = (Rules(prune.find_prune_misfit, prune.list_idle_settings, prune.CAN_BE_IDLE),)
