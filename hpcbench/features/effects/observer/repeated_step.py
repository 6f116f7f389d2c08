"""Measurement of the effect of one codec on the loss and on the weight update of one step.

The forward and backward passes of a step are repeated with the codec on one kind of traffic, with the same weights and
samples. The differences contain the errors of all messages, as they propagate through the model, and the real
collective algorithm. Afterwards, the state of the run is the same as before.

The loss divergence and the weight divergence follow SNIP (arXiv 2602.01410), which estimates them to first order for
the number formats of matrix products. This module measures both.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import change_treatment
from hpcbench.contract.traffic import Algorithm, Traffic
from hpcbench.contract.treatment import Treatment
from hpcbench.parallel.exact import exact_sum, square_sum
from hpcbench.parallel.phases import Phases
from hpcbench.parallel.pieces import Piece
from hpcbench.train.learning_rate import learning_rate
from hpcbench.train.trainer import Trainer


class Divergence(NamedTuple):
    """Differences between a step with a codec and the same step without the codec."""

    loss: float
    """Change of the loss, as a fraction of the loss."""
    update: float
    """Norm of the change in the weight update, divided by the norm of the update."""
    descent: float
    """First-order estimate of the loss change due to the changed update, as a fraction of the loss.

    The estimate is the sum, over all weights, of the gradient times the change of the update.
    """


@dataclass(frozen=True)
class _Step:
    loss: float
    gradients: list[Tensor]
    """Reduced gradient of each piece."""
    updates: list[Tensor]
    """Change of the weights of each piece."""


class RepeatedStep:
    """A step that is repeated with codecs. All methods are collective calls.

    Parameters
    ----------
    trainer
        Trainer whose weights and optimizer state are used.
    step
        The step whose samples are used, counted from 1. It must be the step after the last completed step.
    """

    def __init__(self, trainer: Trainer, step: int) -> None:
        self._trainer, self._step = trainer, step
        with self._uncounted():
            self._exact = self._take_step()

    def measure(self, codecs: Mapping[Traffic, str]) -> Divergence:
        """Return the effect of codecs, keyed by traffic. Other traffic is not changed."""
        with self._uncounted():
            with self._encoded(codecs):
                step = self._take_step()
            return self._compare(step)

    def _compare(self, step: _Step) -> Divergence:
        changes = [new - old for new, old in zip(step.updates, self._exact.updates, strict=True)]
        squares = [self._square(changes), self._square(self._exact.updates)]
        descent = sum(
            float((change[part].double() * gradient[part].double()).sum())
            for piece, change, gradient in zip(self._pieces, changes, self._exact.gradients, strict=True)
            for part in self._counted(piece)
        )
        trainer, loss = self._trainer, self._exact.loss
        change, update, descent = exact_sum(trainer.mesh.world, [*squares, descent], trainer.policy.exact)
        return Divergence((step.loss - loss) / loss, math.sqrt(change / update), descent / loss)

    @property
    def _pieces(self) -> list[Piece]:
        return self._trainer.data_parallel.pieces

    def _counted(self, piece: Piece) -> list[slice]:
        return piece.counted() if self._trainer.data_parallel.counts(piece) else []

    def _square(self, vectors: list[Tensor]) -> float:
        return sum(
            square_sum(vector[part])
            for piece, vector in zip(self._pieces, vectors, strict=True)
            for part in self._counted(piece)
        )

    def _take_step(self) -> _Step:
        """Run the passes of the step, and compute the weight update without applying it."""
        trainer, settings = self._trainer, self._trainer.run.train
        summand = trainer.backward(self._step - 1)
        (loss,) = exact_sum(trainer.mesh.world, [summand], trainer.policy.exact)
        norm = trainer.data_parallel.gradient_norm()
        factor = settings.clip / norm if norm is not None and 0 < settings.clip < norm else 1.0
        lr, updates = learning_rate(self._step - 1, settings), []
        for piece in self._pieces:
            adam, weights = copy(piece.adam), piece.master.clone()
            adam.first, adam.second = adam.first.clone(), adam.second.clone()
            adam.step(weights, piece.gradient.clone(), lr=lr, factor=factor)
            updates.append(weights - piece.master)
        return _Step(loss, [piece.gradient.clone() for piece in self._pieces], updates)

    @contextmanager
    def _encoded(self, codecs: Mapping[Traffic, str]) -> Iterator[None]:
        """Use these codecs within this context. Weights received before the context are received again."""
        channels = [channel for channel in self._trainer.policy.channels if channel.traffic in codecs]
        engine, before = self._trainer.data_parallel, [channel.treatment for channel in channels]
        has_weights = any(traffic[0] == "ZERO" for traffic in codecs)
        for channel in channels:
            change_treatment(channel, Treatment(get_codec(codecs[channel.traffic]).name, Algorithm.ENCODED))
        if has_weights:
            engine.distribute_weights()
        yield
        for channel, treatment in zip(channels, before, strict=True):
            change_treatment(channel, treatment)
        if has_weights:
            engine.distribute_weights()

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Leave the times and counts of the run unchanged."""
        trainer, phases, calls = self._trainer, self._trainer.phases, self._trainer.policy.calls()
        recorder = phases.recorder
        trainer.record(None)
        trainer.phases = Phases(clock=trainer.clock)
        trainer.experts.paused = True
        yield
        trainer.clock.settle()
        trainer.phases = phases
        trainer.record(recorder)
        trainer.experts.paused = False
        trainer.policy.load_calls(calls)
