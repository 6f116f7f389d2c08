"""Findings about schemes from paired runs: intervals, p-values, and resulting statements.

Intervals are not corrected for multiple tests. Findings are based on p-values. Each p-value is compared with the level
of its question. This level is the share assigned by `hpcbench.report.hierarchy` times the fraction that
`hpcbench.report.looks` allows for the number of pairs.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeVar

from hpcbench.report.hierarchy import LEVEL, Question
from hpcbench.report.looks import compute_level_part, find_next_look
from hpcbench.report.statistics import Interval, Mean, estimate_mean, exponentiate

AS_FAST = 0.03
"""Maximum relative speed difference of schemes that count as equally fast."""

INCONCLUSIVE: Literal["inconclusive"] = "inconclusive"
Speed = Literal["faster", "not faster", "as fast", "inconclusive"]
Loss = Literal["better", "no worse", "worse", "inconclusive"]
Key = TypeVar("Key", bound=Hashable)
Values = Sequence[tuple[float, float]]
"""Values of a scheme and of its comparison scheme, for one or more pairs of runs."""


@dataclass(frozen=True)
class PValue:
    """Probability of values at least as extreme as the observed values if the hypothesis is true."""

    raw: float
    level: float
    """Significance level of the question at this number of pairs."""

    @property
    def adjusted(self) -> float:
        """Adjusted p-value, which is compared with `LEVEL`.

        The adjustment accounts for the question's share of the level and for repeated looks.
        """
        return min(1.0, self.raw * LEVEL / self.level) if self.level > 0 else 1.0

    @property
    def rejects(self) -> bool:
        """Whether the hypothesis is rejected."""
        return self.raw < self.level


@dataclass(frozen=True)
class SpeedFinding(Interval):
    """Samples/s divided by the samples/s of the baseline or of another scheme. A single pair has no p-values."""

    margin: float
    """Speed margin as a fraction. A scheme with a smaller gain does not count as faster."""
    equal: PValue | None
    """Two-sided p-value of the hypothesis that the ratio is 1."""
    at_margin: PValue | None
    """P-value of the hypothesis that the ratio is at least ``1 + margin``."""
    enough: int | None
    """Number of pairs that would probably suffice for a decision.

    The value is None if the question is decided or if no number can be estimated.
    """
    at_slower: PValue | None = None
    """P-value of the hypothesis that the ratio is at most ``1 / (1 + margin)``."""
    apart: PValue | None = None
    """P-value of the hypothesis that the speeds differ by at least `AS_FAST` (two one-sided tests)."""

    @property
    def shown(self) -> Speed:
        """First significant statement of: ratio above or below 1, below ``1 + margin``, or about 1."""
        if self.equal is not None and self.equal.rejects:
            return "faster" if self.estimate > 1 else "not faster"
        if self.at_margin is not None and self.at_margin.rejects:
            return "not faster"
        return "as fast" if self.apart is not None and self.apart.rejects else INCONCLUSIVE

    @property
    def near(self) -> bool:
        """Whether the uncorrected interval lies within `AS_FAST`. The interval alone is not a significant finding."""
        limit = 1 + AS_FAST
        return self.low is not None and self.high is not None and 1 / limit < self.low and self.high < limit

    @property
    def excludes_one_uncorrected(self) -> bool:
        """Whether the uncorrected interval excludes 1 although the finding is inconclusive."""
        return self.shown == INCONCLUSIVE and ((self.low or 0.0) > 1 or (self.high or math.inf) < 1)

    @property
    def slower(self) -> bool:
        """Whether the ratio is significantly below 1."""
        return self.equal is not None and self.equal.rejects and self.estimate < 1

    @property
    def as_fast(self) -> bool:
        """Whether the ratio is significantly above ``1 / (1 + margin)``."""
        return (self.at_slower is not None and self.at_slower.rejects) or self.shown == "faster"

    def turn(self) -> "SpeedFinding":
        """Return the finding from the perspective of the other scheme."""
        ends = [None if end is None else _invert(end) for end in (self.estimate, self.high, self.low)]
        p = self.equal, self.at_slower, None, self.at_margin, self.apart
        return SpeedFinding(ends[0] or 0.0, ends[1], ends[2], self.pairs, self.margin, *p)


@dataclass(frozen=True)
class LossFinding(Interval):
    """Difference in loss from the baseline or another scheme. A single pair has no p-values."""

    margin: float
    """Largest difference that is ignored."""
    within: PValue | None
    """P-value of the hypothesis that the difference does not exceed the margin on the side of the estimate."""
    apart: PValue | None
    """P-value of the hypothesis that the absolute difference is at least `margin` (two one-sided tests)."""
    enough: int | None
    """Number of pairs that would probably suffice for a decision.

    The value is None if the question is decided or if no number can be estimated.
    """
    worst: float
    """Largest difference of any pair. Rare failures increase this value long before they increase the mean."""

    @property
    def shown(self) -> Loss:
        """Whether the difference lies significantly within the margin, or beyond the margin on one side."""
        if self.apart is not None and self.apart.rejects:
            return "no worse"
        return self.side or INCONCLUSIVE

    @property
    def side(self) -> Literal["better", "worse"] | None:
        """Side on which the difference lies significantly beyond the margin."""
        if self.within is None or not self.within.rejects or abs(self.estimate) <= self.margin:
            return None
        return "worse" if self.estimate > 0 else "better"

    @property
    def steady(self) -> bool:
        """Whether no pair is worse by more than the margin."""
        return self.worst <= self.margin

    def turn(self) -> "LossFinding":
        """Return the finding from the perspective of the other scheme, without the worst pair.

        The worst pair of one scheme is the best pair of the other scheme.
        """
        low, high = (None if end is None else -end for end in (self.high, self.low))
        p = self.within, self.apart, None
        return LossFinding(-self.estimate, low, high, self.pairs, self.margin, *p, worst=-math.inf)


@dataclass(frozen=True)
class SpeedTest:
    """Undecided test of two schemes' paired speeds, based on the logarithms of the speed ratios."""

    mean: Mean
    margin: float

    @classmethod
    def of(cls, values: Values, margin: float) -> "SpeedTest":
        """Create a test from pairs of positive, finite values. `margin` is a fraction."""
        return cls(estimate_mean([math.log(a) - math.log(b) for a, b in values]), margin)

    @property
    def question(self) -> Question | None:
        """Shares that decide the test, or None for a single pair."""
        if self.mean.error is None:
            return None
        limits = math.log1p(self.margin), math.log1p(AS_FAST)
        side = self.mean.p_two_sided()
        largest_p = max(side, *(_compute_p_of_bound(self.mean, sign * limit) for limit in limits for sign in (1, -1)))
        part = compute_level_part(self.mean.count)
        return Question(side / part, largest_p / part)

    def finding(self, share: float, side_share: float = 0.0) -> SpeedFinding:
        """Return the finding at a share of the level. The test of equal speeds may use a larger `side_share`."""
        mean, limit = self.mean, math.log1p(self.margin)
        bare = *_split_interval(exponentiate(mean.interval())), self.margin
        if mean.error is None:
            return SpeedFinding(*bare, None, None, None)
        part = compute_level_part(mean.count)

        def finding(enough: int | None) -> SpeedFinding:
            return SpeedFinding(
                *bare,
                PValue(mean.p_two_sided(), part * max(share, side_share)),
                PValue(mean.p_less(limit), part * share),
                enough,
                PValue(mean.p_greater(-limit), part * share),
                PValue(mean.p_within(math.log1p(AS_FAST)), part * share),
            )

        if finding(None).shown != INCONCLUSIVE:
            return finding(None)
        near = math.log1p(AS_FAST) - abs(mean.estimate)
        return finding(
            _find_enough(mean, (abs(mean.estimate), share / 2), (limit - mean.estimate, share), (near, share))
        )


@dataclass(frozen=True)
class LossTest:
    """Undecided test of two schemes' paired losses, based on the loss differences."""

    mean: Mean
    margin: float
    worst: float

    @classmethod
    def of(cls, values: Values, margin: float) -> "LossTest":
        """Create a test from pairs of finite values. `margin` is a loss difference."""
        differences = [a - b for a, b in values]
        return cls(estimate_mean(differences), margin, max(differences))

    @property
    def question(self) -> Question | None:
        """Shares that decide the test, or None for a single pair."""
        if self.mean.error is None:
            return None
        largest_p = max(_compute_p_of_bound(self.mean, sign * self.margin) for sign in (1, -1)) / compute_level_part(
            self.mean.count
        )
        return Question(largest_p, largest_p)

    def finding(self, share: float) -> LossFinding:
        """Return the finding at a share of the level."""
        mean, margin = self.mean, self.margin
        bare = *_split_interval(mean.interval()), margin
        if mean.error is None:
            return LossFinding(*bare, None, None, None, self.worst)
        level = compute_level_part(mean.count) * share
        beyond = mean.p_greater(margin) if mean.estimate > 0 else mean.p_less(-margin)

        def finding(enough: int | None) -> LossFinding:
            p = PValue(beyond, level), PValue(mean.p_within(margin), level)
            return LossFinding(*bare, *p, enough, self.worst)

        if finding(None).shown != INCONCLUSIVE:
            return finding(None)
        return finding(_find_enough(mean, (abs(margin - abs(mean.estimate)), share)))


def compute_margin(values: Values, part: float, *, of_both: bool = False) -> float:
    """Return the loss margin: a fraction of the mean loss of the second scheme, or of both schemes."""
    return part * abs(fmean(value for pair in values for value in (pair if of_both else pair[1:])))


def _compute_p_of_bound(mean: Mean, bound: float) -> float:
    """Return the p-value of the one-sided test of the mean against a bound, in the direction of the estimate."""
    return mean.p_two_sided(bound) / 2


def _invert(x: float) -> float:
    return 1 / x if x else math.inf


def _split_interval(interval: Interval) -> tuple[float, float | None, float | None, int]:
    return interval.estimate, interval.low, interval.high, interval.pairs


def _find_enough(mean: Mean, *aims: tuple[float, float]) -> int | None:
    """Return the smallest number of pairs in `looks.LOOKS` with which at least one test is probably significant.

    Each item of `aims` contains a test's distance and the test's share of the level.
    """
    scatter = (mean.error or 0.0) * math.sqrt(mean.count)
    looks = [find_next_look(distance, scatter, share, mean.count) for distance, share in aims]
    return min((look for look in looks if look is not None), default=None)
