"""Posterior beliefs about codec combinations, from predictions and completed rounds.

The predicted time and loss of each codec in each dimension are uncertain. Their posterior is sampled, so a run of one
combination also provides information about other combinations with the same codecs. The effect that a round has on all
of its runs is integrated out. The scatter of runs is integrated out with an inverse gamma prior.

The posterior probabilities determine the next runs and the chosen scheme, and depend on the predictions. The intervals
of `Standings`, which decide whether the chosen scheme is confirmed, do not depend on predictions.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcbench.tune.choose import Combination, Options
from hpcbench.tune.sampler import sample_posterior

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
    """Samples of the time and loss of each combination.

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
        draws: int = 800,
    ) -> None:
        self.names = [baseline, *(name for name in combinations if name != baseline)]
        self._order = {name: i for i, name in enumerate(self.names)}
        self._prior = uncertainty or Uncertainty()
        self.budget = budget
        choices = [(dimension, each) for dimension, every in options.items() for each in every]
        self._uses = np.zeros((len(choices), len(self.names)))
        for i, (dimension, each) in enumerate(choices):
            for name, combination in combinations.items():
                if name != baseline and combination.codecs.get(dimension) == each.codec:
                    self._uses[i, self._order[name]] = 1.0
        random, prior = np.random.default_rng(1), self._prior
        self._time = _Quantity(
            np.array([each.seconds for _, each in choices]),
            random.standard_normal((draws, len(choices))),
            lambda parts, draws, uses: _to_log_time((parts * (1 + prior.time * draws)) @ uses),
            lambda draws: -0.5 * (draws**2).sum(axis=1),
            prior.time_scatter,
            seed=2,
        )
        self._loss = _Quantity(
            np.array([each.loss for _, each in choices]),
            random.standard_t(3, (draws, len(choices))),
            lambda parts, draws, uses: (parts * np.exp(prior.loss * np.clip(draws, -8.0, 8.0))) @ uses,
            lambda draws: -2 * np.log1p(draws**2 / 3).sum(axis=1),
            prior.loss_scatter,
            seed=3,
        )
        self.update((), ())

    def update(self, times: Sequence[Mapping[str, float]], losses: Sequence[Mapping[str, float]]) -> None:
        """Sample the posterior, given the measured rounds: log times, and losses relative to the baseline's mean."""
        self._log_times = self._time.sample(_Rounds(times, self._order), self._uses, self._prior.weight)
        self._losses = self._loss.sample(_Rounds(losses, self._order), self._uses, self._prior.weight)

    def _is_within(self) -> NDArray[np.bool_]:
        within: NDArray[np.bool_] = np.less_equal(self._losses, np.full(1, self.budget))
        return within

    def probability_best(self, tolerance: float, excluded: Collection[str] = ()) -> dict[str, float]:
        """Return each scheme's probability of being within the budget and at most slightly slower than the fastest.

        Parameters
        ----------
        tolerance
            Negligible difference in speed.
        excluded
            Schemes that left the race.
        """
        return dict(zip(self.names, map(float, self._find_best(tolerance, excluded).mean(axis=0)), strict=True))

    def is_as_fast(self, scheme: str, other: str, tolerance: float) -> bool:
        """Return whether a scheme's expected time exceeds that of another scheme by at most the tolerance."""
        difference = self._log_times[:, self._order[scheme]] - self._log_times[:, self._order[other]]
        return bool(difference.mean() <= math.log1p(tolerance))

    def list_contenders(self, count: int, tolerance: float, excluded: Collection[str] = ()) -> list[str]:
        """Return the set of schemes that most probably contains one of the best schemes, the likeliest scheme first."""
        best = self._find_best(tolerance, excluded)
        contenders = list[str]()
        while len(contenders) < count and best.any():
            place = int(np.argmax(best.mean(axis=0)))
            contenders.append(self.names[place])
            best = best[~best[:, place]]
        return contenders

    def _find_best(self, tolerance: float, excluded: Collection[str]) -> NDArray[np.bool_]:
        allowed = self._is_within()
        allowed[:, [self._order[name] for name in excluded if name in self._order]] = False
        times = np.where(allowed, self._log_times, np.inf)
        return np.asarray(times <= times.min(axis=1, keepdims=True) + math.log1p(tolerance)) & allowed


class _Rounds:
    """Measured values of some rounds, as arrays."""

    def __init__(self, rounds: Sequence[Mapping[str, float]], order: Mapping[str, int]) -> None:
        values, self.columns, blocks = list[float](), list[int](), list[int]()
        for each in rounds:
            measured = {name: value for name, value in each.items() if name in order}
            if len(measured) > 1:
                values += measured.values()
                self.columns += [order[name] for name in measured]
                blocks.append(len(measured))
        self._values = np.array(values)
        self._center = np.eye(len(values))
        start = 0
        for size in blocks:
            self._center[start : start + size, start : start + size] -= 1 / size
            start += size
        self._freedom = len(values) - len(blocks)

    def log_likelihood(self, expected: Array, scatter: float, weight: float) -> Array:
        """Return the log likelihood of each row of expected values."""
        residuals = (self._values - expected) @ self._center
        squares = (residuals**2).sum(axis=1)
        return np.asarray(-(weight + self._freedom / 2) * np.log(weight * scatter**2 + squares / 2))


@dataclass(frozen=True)
class _Quantity:
    """A value of each scheme, such as the log time, computed from uncertain predictions for the scheme's choices."""

    parts: Array
    """Prediction for each choice."""
    draws: Array
    """Samples of the prior's standardized errors, [draws, choices]."""
    combine: Callable[[Array, Array, Array], Array]
    """Function that returns the values of schemes, [draws, schemes], given `parts`, errors and `uses`."""
    log_prior: Callable[[Array], Array]
    scatter: float
    """Expected standard deviation of a run within a round."""
    seed: int

    def sample(self, rounds: _Rounds, uses: Array, weight: float) -> Array:
        """Return samples of the values of all schemes, given the rounds. `uses` has shape [choices, schemes]."""
        draws = self.draws.copy()
        active = (uses[:, rounds.columns].sum(axis=1) > 0) & (self.parts != 0)
        if active.any():
            parts, used = self.parts[active], uses[np.ix_(active, rounds.columns)]

            def log_likelihood(draws: Array) -> Array:
                return rounds.log_likelihood(self.combine(parts, draws, used), self.scatter, weight)

            draws[:, active] = sample_posterior(draws[:, active], self.log_prior, log_likelihood, seed=self.seed)
        return self.combine(self.parts, draws, uses)


def _to_log_time(change: Array) -> Array:
    return np.asarray(np.log(np.maximum(1 + change, 0.02)))
