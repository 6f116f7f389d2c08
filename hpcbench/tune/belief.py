"""What predictions and completed rounds together say about each combination of codecs.

The predicted time and loss of each codec in each dimension are uncertain. Samples of them are drawn and weighted by the
likelihood of the measured rounds, so that a run of one combination also informs about others with the same codecs
(Gordon, Salmond and Smith, IEE Proceedings F 140, 1993: importance weights). The effect of a round on all of its runs
is integrated out, and so is the scatter of runs, with an inverse gamma prior.

These are probabilities given the predictions. They choose what runs next; `Standings` has intervals without them.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcbench.tune.choose import Combination, Options

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Uncertainty:
    """Prior uncertainty of predictions and of runs."""

    time: float = 0.2
    """Relative error of the predicted change of the step time."""
    loss: float = 0.8
    """Scale of the logarithm of the measured over the predicted increase of the loss; Student's t, 3 degrees."""
    time_scatter: float = 0.012
    """Expected standard deviation of the logarithm of the time of a run within its round."""
    loss_scatter: float = 0.002
    """Expected standard deviation of the loss of a run within its round, as a fraction of the loss."""
    weight: float = 2.0
    """Shape of the prior of both scatters; a larger one trusts them more."""


class Belief:
    """Weighted samples of the time and loss of combinations.

    Parameters
    ----------
    options
        Predictions of each dimension.
    combinations
        Candidates by name of the scheme.
    baseline
        Name of the baseline, whose changes are 0.
    budget
        Largest increase of the loss, as a fraction.
    uncertainty
        Prior uncertainty.
    draws
        Number of samples.
    """

    def __init__(
        self,
        options: Options,
        combinations: Mapping[str, Combination],
        baseline: str,
        budget: float,
        uncertainty: Uncertainty | None = None,
        draws: int = 2000,
    ) -> None:
        self.names = [baseline, *(name for name in combinations if name != baseline)]
        self._order = {name: i for i, name in enumerate(self.names)}
        self._prior = uncertainty or Uncertainty()
        self.budget = budget
        draw = np.random.default_rng(1)
        seconds, losses = np.zeros((draws, len(self.names))), np.zeros((draws, len(self.names)))
        for dimension, choices in options.items():
            for choice in choices:
                uses = [name for name, each in combinations.items() if each.codecs.get(dimension) == choice.codec]
                columns = [self._order[name] for name in uses if name != baseline]
                time = choice.seconds * (1 + self._prior.time * draw.standard_normal((draws, 1)))
                loss = choice.loss * np.exp(self._prior.loss * draw.standard_t(3, (draws, 1)).clip(-8, 8))
                seconds[:, columns] += time
                losses[:, columns] += loss
        self._log_times: Array = np.log(np.maximum(1 + seconds, 0.02))
        self._losses: Array = losses
        self._times_weight = self._losses_weight = np.full(draws, 1 / draws)

    def update(self, times: Sequence[Mapping[str, float]], losses: Sequence[Mapping[str, float]]) -> None:
        """Weight the samples by measured rounds: logarithms of times, and losses over the baseline's mean loss."""
        self._times_weight = self._weigh(times, self._log_times, self._prior.time_scatter)
        self._losses_weight = self._weigh(losses, self._losses, self._prior.loss_scatter)

    def _weigh(self, rounds: Sequence[Mapping[str, float]], samples: Array, scatter: float) -> Array:
        squares, freedom = np.zeros(len(samples)), 0
        for each in rounds:
            values = {name: value for name, value in each.items() if name in self._order}
            if len(values) < 2:
                continue
            residuals = np.array(list(values.values())) - samples[:, [self._order[name] for name in values]]
            residuals -= residuals.mean(axis=1, keepdims=True)
            squares += (residuals**2).sum(axis=1)
            freedom += len(values) - 1
        shape = self._prior.weight
        log_weights = -(shape + freedom / 2) * np.log(shape * scatter**2 + squares / 2)
        weights = np.exp(log_weights - log_weights.max())
        return np.asarray(weights / weights.sum())

    def expected_log_times(self) -> dict[str, float]:
        """Return the expected logarithm of the time of each scheme over the baseline's."""
        return dict(zip(self.names, map(float, self._times_weight @ self._log_times), strict=True))

    def probability_within(self) -> dict[str, float]:
        """Return the probability that each scheme keeps the loss budget."""
        within = self._losses_weight @ (self._losses <= self.budget)
        return dict(zip(self.names, map(float, within), strict=True))

    def choose(self, probability: float, among: Callable[[str], bool] = lambda name: True) -> str:
        """Return the scheme of least expected time that keeps the budget with some probability; else the baseline."""
        times, within = self.expected_log_times(), self.probability_within()
        allowed = [name for name in self.names if within[name] >= probability and among(name)]
        return min(allowed, key=lambda name: times[name], default=self.names[0])

    def assurance(self, scheme: str, tolerance: float, excluded: Collection[str] = ()) -> float:
        """Return the probability that no scheme within the budget is faster by more than the tolerance."""
        open_names = [name for name in self.names if name not in excluded]
        columns = [self._order[name] for name in open_names]
        rng = np.random.default_rng(2)
        count = 400
        times: Array = self._log_times[rng.choice(len(self._log_times), count, p=self._times_weight)]
        losses: Array = self._losses[rng.choice(len(self._losses), count, p=self._losses_weight)]
        allowed: Array = np.where(losses[:, columns] <= self.budget, times[:, columns], np.inf)
        mine: Array = times[:, self._order[scheme]]
        fastest: Array = allowed.min(axis=1)
        return float(np.mean(mine <= fastest + math.log1p(tolerance)))
