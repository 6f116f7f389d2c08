"""Observer that counts zero weights after the last step."""

import math

from hpcbench.features.prune.engine.masks import Masks
from hpcbench.features.prune.events import SparsePart, Sparsity
from hpcbench.train.observer import Observer
from hpcbench.train.trainer import Trainer


class CountedZeros(Observer):
    """Observer of a run with sparse weights.

    Parameters
    ----------
    trainer
        The run's trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._engine = trainer.data_parallel

    def summary(self, *, from_step: int, to_step: int) -> Sparsity | None:
        """Return the zeros of each prunable parameter (a collective call)."""
        masks = self._engine.masks
        if not isinstance(masks, Masks):
            return None
        parts = tuple(
            SparsePart(part=target.name, weights=math.prod(target.shape), zeros=zeros)
            for target, zeros in masks.count_zeros()
        )
        return Sparsity(pattern=masks.settings.pattern, updates=self._engine.updates, parts=parts)
