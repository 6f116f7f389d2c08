"""Posterior beliefs about codec combinations, from predictions and completed rounds.

The predicted time and loss of each codec in each dimension are uncertain. Samples are drawn and weighted by the
likelihood of the measured rounds, so a run of one combination also provides information about other combinations with
the same codecs (Gordon, Salmond and Smith, IEE Proceedings F 140, 1993: importance weights). The common effect of a
round on its runs is integrated out. The scatter of runs is integrated out with an inverse gamma prior.

The probabilities depend on the predictions and only select the next runs. The intervals of `Standings` do not depend on
predictions.
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
    """Prior uncertainty of predictions and runs."""

    time: float = 0.2
    """Relative error of the predicted change of the step time."""
    loss: float = 0.8
    """Scale of log(measured / predicted loss increase), which has a Student's t prior with 3 degrees of freedom."""
    time_scatter: float = 0.012
    """Expected standard deviation of a run's log time within a round."""
    loss_scatter: float = 0.002
    """Expected relative standard deviation of a run's loss within a round."""
    weight: float = 2.0
    """Shape of both scatter priors. A larger shape gives the prior more weight."""


class Belief:
    """Weighted samples of the time and loss of each combination.

    Parameters
    ----------
    options
        Predictions for each dimension.
    combinations
        Candidates, keyed by scheme name.
    baseline
        Name of the baseline scheme.
    budget
        Maximum loss increase, as a fraction.
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
        """Weight the samples by measured rounds of log times and of losses relative to the baseline's mean loss."""
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
        """Return the expected log time of each scheme relative to the baseline."""
        return dict(zip(self.names, map(float, self._times_weight @ self._log_times), strict=True))

    def probability_within(self) -> dict[str, float]:
        """Return the probability that each scheme stays within the loss budget."""
        within = self._losses_weight @ (self._losses <= self.budget)
        return dict(zip(self.names, map(float, within), strict=True))

    def choose(self, probability: float, among: Callable[[str], bool] = lambda name: True) -> str:
        """Return the fastest scheme that stays within the budget with at least this probability, or the baseline."""
        times, within = self.expected_log_times(), self.probability_within()
        allowed = [name for name in self.names if within[name] >= probability and among(name)]
        return min(allowed, key=lambda name: times[name], default=self.names[0])

    def assurance(self, scheme: str, tolerance: float, excluded: Collection[str] = ()) -> float:
        """Return the probability that no other scheme within the budget is faster by more than the tolerance."""
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
