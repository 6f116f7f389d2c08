"""Least-squares differences between schemes that ran in the same rounds, with one effect per scheme and per round.

A round is one allocation and one seed. The round effect is common to all runs in the round, so it cancels in
differences. All runs share one variance. Schemes that leave the race early still contribute to the variance estimate.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcbench.present.notation import Interval
from hpcbench.tune.sequences import find_critical_t


@dataclass(frozen=True)
class Difference:
    """Estimated difference between two schemes."""

    estimate: float
    factor: float
    """Variance of the estimate divided by the variance of one run."""
    variance: float
    """Estimated variance of one run."""
    freedom: int
    """Degrees of freedom of `variance`, or 0 if the variance cannot be estimated."""
    rounds: int
    """Number of rounds with both schemes."""

    @property
    def error(self) -> float:
        """Standard error of the estimate, infinite if the variance cannot be estimated."""
        return math.sqrt(self.factor * self.variance) if self.freedom else math.inf

    def sequence(self, level: float) -> Interval:
        """Return the interval of the two-sided confidence sequence at this look. Bounds may be infinite."""
        critical = find_critical_t(level, self.factor, self.freedom)
        half = math.inf if math.isinf(critical) else critical * self.error
        return Interval(self.estimate, self.estimate - half, self.estimate + half, self.rounds)


class Effects:
    """Effects of schemes on a measured value, estimated from rounds with one value per scheme.

    Parameters
    ----------
    rounds
        Values keyed by scheme, one mapping per round. All rounds contain `reference`.
    reference
        Scheme whose effect is 0.
    """

    def __init__(self, rounds: Sequence[Mapping[str, float]], reference: str) -> None:
        self._rounds = [dict(values) for values in rounds if len(values) > 1 and reference in values]
        self._names = list(dict.fromkeys(name for values in self._rounds for name in values if name != reference))
        self._reference = reference
        self._fit()

    def _fit(self) -> None:
        order = {name: i for i, name in enumerate(self._names)}
        count = len(order)
        normal, right, total = np.zeros((count, count)), np.zeros(count), 0.0
        for values in self._rounds:
            mean = math.fsum(values.values()) / len(values)
            total += math.fsum((value - mean) ** 2 for value in values.values())
            places = [order[name] for name in values if name != self._reference]
            normal[np.ix_(places, places)] -= 1 / len(values)
            for place in places:
                normal[place, place] += 1
                right[place] += values[self._names[place]] - mean
        self._covariance = np.linalg.inv(normal) if count else normal
        self._effects = self._covariance @ right
        runs = sum(map(len, self._rounds))
        self.freedom = max(0, runs - len(self._rounds) - count)
        self.variance = max(0.0, total - float(right @ self._effects)) / self.freedom if self.freedom else math.nan

    @property
    def schemes(self) -> list[str]:
        """Schemes with an estimated effect, except the reference."""
        return list(self._names)

    def difference(self, scheme: str, other: str | None = None) -> Difference | None:
        """Return the difference between two schemes' effects, or None if they have no common round."""
        weights = np.zeros(len(self._names))
        for name, sign in ((scheme, 1.0), (other or self._reference, -1.0)):
            if name in self._names:
                weights[self._names.index(name)] += sign
            elif name != self._reference:
                return None
        common = sum(scheme in values and (other or self._reference) in values for values in self._rounds)
        if not common:
            return None
        factor = float(weights @ self._covariance @ weights)
        return Difference(float(weights @ self._effects), factor, self.variance, self.freedom, common)
