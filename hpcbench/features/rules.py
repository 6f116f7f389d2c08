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
        Returns the first rule that the settings break, of a model, its training, `tp` and `tensor` of the layout.
    idle
        Yields settings that would change nothing, with the reason and the remedy.
    can_be_idle
        The settings that `idle` may give.
    """

    misfit: Callable[[Model, Train, int, str], Misfit | None]
    idle: Callable[[Train], Iterator[tuple[FieldPath, str]]]
    can_be_idle: tuple[FieldPath, ...]


RULES = (Rules(prune.prune_misfit, prune.idle, prune.CAN_BE_IDLE),)
