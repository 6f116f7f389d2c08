"""Findings about schemes from pairs of runs: intervals, p-values, and the statements that they allow.

An interval is not corrected. A finding rests on p-values, each compared with the level of its question: the share that
`hpcbench.report.hierarchy` gives it, times the part that `hpcbench.report.looks` allows for the number of pairs.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeVar

from hpcbench.report.hierarchy import LEVEL, Chain, Question, ask_family
from hpcbench.report.looks import compute_level_part, find_next_look
from hpcbench.report.statistics import Interval, Mean, estimate_mean, exponentiate

AS_FAST = 0.03
"""Largest relative difference in speed at which two schemes count as equally fast."""

NOT_SHOWN: Literal["not shown"] = "not shown"
"""Inconclusive. JSON and CSV of earlier versions have this value, too."""
Speed = Literal["faster", "not faster", "as fast", "not shown"]
Loss = Literal["better", "as good", "worse", "not shown"]
Key = TypeVar("Key", bound=Hashable)
Values = Sequence[tuple[float, float]]
"""Values of a scheme and of the one that it is compared with, for each pair of runs; one or more pairs."""
Family = Mapping[Key, Values]
"""Values by scheme, or by pair of schemes."""


@dataclass(frozen=True)
class PValue:
    """Probability of the observed values, or of more extreme ones, if the hypothesis were true."""

    raw: float
    level: float
    """Level of its question at this number of pairs."""

    @property
    def adjusted(self) -> float:
        """The p-value that is compared with `LEVEL`, after its question's share and the looks."""
        return min(1.0, self.raw * LEVEL / self.level) if self.level > 0 else 1.0

    @property
    def rejects(self) -> bool:
        """Whether the hypothesis is rejected."""
        return self.raw < self.level


@dataclass(frozen=True)
class SpeedFinding(Interval):
    """Samples/s divided by the baseline's, or by another scheme's. A single pair has no p-values."""

    margin: float
    """Margin of the speed as a fraction. A smaller gain does not count as faster."""
    equal: PValue | None
    """The p-value of the hypothesis that the ratio is 1, two-sided."""
    at_margin: PValue | None
    """The p-value of the hypothesis that the ratio is ``1 + margin`` or more."""
    enough: int | None
    """Number of pairs that would probably decide it; None if it is decided, or if no number can be given."""
    at_slower: PValue | None = None
    """The p-value of the hypothesis that the ratio is ``1 / (1 + margin)`` or less."""
    apart: PValue | None = None
    """The p-value of the hypothesis that the two are not as fast, by `AS_FAST` or more: two one-sided tests."""

    @property
    def shown(self) -> Speed:
        """The first statement that is significant: a ratio above or below 1, below ``1 + margin``, or about 1."""
        if self.equal is not None and self.equal.rejects:
            return "faster" if self.estimate > 1 else "not faster"
        if self.at_margin is not None and self.at_margin.rejects:
            return "not faster"
        return "as fast" if self.apart is not None and self.apart.rejects else NOT_SHOWN

    @property
    def near(self) -> bool:
        """Whether the interval of this comparison alone lies within `AS_FAST`, which shows nothing in a report."""
        limit = 1 + AS_FAST
        return self.low is not None and self.high is not None and 1 / limit < self.low and self.high < limit

    @property
    def slower(self) -> bool:
        """Whether the ratio is significantly below 1."""
        return self.equal is not None and self.equal.rejects and self.estimate < 1

    @property
    def as_fast(self) -> bool:
        """Whether the ratio is significantly above ``1 / (1 + margin)``."""
        return (self.at_slower is not None and self.at_slower.rejects) or self.shown == "faster"

    def turn(self) -> "SpeedFinding":
        """Return the same finding seen from the other scheme."""
        ends = [None if end is None else _invert(end) for end in (self.estimate, self.high, self.low)]
        p = self.equal, self.at_slower, None, self.at_margin, self.apart
        return SpeedFinding(ends[0] or 0.0, ends[1], ends[2], self.pairs, self.margin, *p)


@dataclass(frozen=True)
class LossFinding(Interval):
    """Loss minus the baseline's, or minus another scheme's. A single pair has no p-values."""

    margin: float
    """Largest difference that does not count."""
    within: PValue | None
    """The p-value of the hypothesis that the difference is not beyond the margin, on the side of the estimate."""
    apart: PValue | None
    """The p-value of the hypothesis that the difference is `margin` or more: two one-sided tests."""
    enough: int | None
    """Number of pairs that would probably decide it; None if it is decided, or if no number can be given."""
    worst: float
    """The largest difference of a pair. Rare failures raise it long before they raise the mean."""

    @property
    def shown(self) -> Loss:
        """Whether the difference lies significantly within the margin, or beyond it on one side."""
        if self.apart is not None and self.apart.rejects:
            return "as good"
        return self.side or NOT_SHOWN

    @property
    def side(self) -> Literal["better", "worse"] | None:
        """The side on which the difference lies significantly beyond the margin."""
        if self.within is None or not self.within.rejects or abs(self.estimate) <= self.margin:
            return None
        return "worse" if self.estimate > 0 else "better"

    @property
    def steady(self) -> bool:
        """Whether no pair is worse by more than the margin."""
        return self.worst <= self.margin

    def turn(self) -> "LossFinding":
        """Return the same finding seen from the other scheme, without the worst pair, which is the other's best one."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        p = self.within, self.apart, None
        return LossFinding(-self.estimate, low, high, self.pairs, self.margin, *p, worst=-math.inf)


@dataclass(frozen=True)
class SpeedTest:
    """The speeds of two schemes in pairs, before anything is decided: the logarithms of their ratios."""

    mean: Mean
    margin: float

    @classmethod
    def of(cls, values: Values, margin: float) -> "SpeedTest":
        """Take the ratios of pairs of positive, finite values; `margin` is a fraction."""
        return cls(estimate_mean([math.log(a) - math.log(b) for a, b in values]), margin)

    @property
    def question(self) -> Question | None:
        """The shares that decide it; None for a single pair."""
        if self.mean.error is None:
            return None
        limits = math.log1p(self.margin), math.log1p(AS_FAST)
        side = self.mean.p_two_sided()
        largest_p = max(side, *(_compute_p_of_bound(self.mean, sign * limit) for limit in limits for sign in (1, -1)))
        part = compute_level_part(self.mean.count)
        return Question(side / part, largest_p / part)

    def finding(self, share: float, side_share: float = 0.0) -> SpeedFinding:
        """Return the finding with a share of the level; `side_share` is a larger share for the test of equal speeds."""
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

        if finding(None).shown != NOT_SHOWN:
            return finding(None)
        near = math.log1p(AS_FAST) - abs(mean.estimate)
        return finding(
            _find_enough(mean, (abs(mean.estimate), share / 2), (limit - mean.estimate, share), (near, share))
        )


@dataclass(frozen=True)
class LossTest:
    """The losses of two schemes in pairs, before anything is decided: their differences."""

    mean: Mean
    margin: float
    worst: float

    @classmethod
    def of(cls, values: Values, margin: float) -> "LossTest":
        """Take the differences of pairs of finite values; `margin` is a difference of losses."""
        differences = [a - b for a, b in values]
        return cls(estimate_mean(differences), margin, max(differences))

    @property
    def question(self) -> Question | None:
        """The shares that decide it; None for a single pair."""
        if self.mean.error is None:
            return None
        largest_p = max(_compute_p_of_bound(self.mean, sign * self.margin) for sign in (1, -1)) / compute_level_part(
            self.mean.count
        )
        return Question(largest_p, largest_p)

    def finding(self, share: float) -> LossFinding:
        """Return the finding with a share of the level."""
        mean, margin = self.mean, self.margin
        bare = *_split_interval(mean.interval()), margin
        if mean.error is None:
            return LossFinding(*bare, None, None, None, self.worst)
        level = compute_level_part(mean.count) * share
        beyond = mean.p_greater(margin) if mean.estimate > 0 else mean.p_less(-margin)

        def finding(enough: int | None) -> LossFinding:
            p = PValue(beyond, level), PValue(mean.p_within(margin), level)
            return LossFinding(*bare, *p, enough, self.worst)

        if finding(None).shown != NOT_SHOWN:
            return finding(None)
        return finding(_find_enough(mean, (abs(margin - abs(mean.estimate)), share)))


def compare_speeds(family: Family[Key], margin: float) -> dict[Key, SpeedFinding]:
    """Compare speeds over a number of pairs that was fixed in advance, as one family (Holm), looked at once."""
    tests = {key: SpeedTest.of(values, margin) for key, values in family.items()}
    parts = {key: compute_level_part(test.mean.count) for key, test in tests.items()}
    questions = {key: test.question for key, test in tests.items()}
    chains = {
        key: Chain(Question(question.side * parts[key], question.complete * parts[key]))
        for key, question in questions.items()
        if question is not None
    }
    shares = ask_family(chains, LEVEL)
    return {key: test.finding(shares[key].speed / parts[key] if key in shares else 0.0) for key, test in tests.items()}


def compute_margin(values: Values, part: float, *, of_both: bool = False) -> float:
    """Return the margin of a loss: a fraction of the mean loss of the second scheme, or of both schemes."""
    return part * abs(fmean(value for pair in values for value in (pair if of_both else pair[1:])))


def _compute_p_of_bound(mean: Mean, bound: float) -> float:
    """Return the one-sided p-value of a bound, on the side of it that the estimate is on."""
    return mean.p_two_sided(bound) / 2


def _invert(x: float) -> float:
    return 1 / x if x else math.inf


def _split_interval(interval: Interval) -> tuple[float, float | None, float | None, int]:
    return interval.estimate, interval.low, interval.high, interval.pairs


def _find_enough(mean: Mean, *aims: tuple[float, float]) -> int | None:
    """Return the number of pairs for the aim that needs the fewest, of those at which a study may be looked at.

    Each aim is a distance and a share of the level.
    """
    scatter = (mean.error or 0.0) * math.sqrt(mean.count)
    looks = [find_next_look(distance, scatter, share, mean.count) for distance, share in aims]
    return min((look for look in looks if look is not None), default=None)
