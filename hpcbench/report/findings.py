"""Findings about schemes from pairs of runs: intervals, p-values, and the statements that they allow.

A family is the argument of one call: all schemes of a cell for which the same question is asked. Against the baseline,
speed and loss are two questions and two families. For schemes against each other there is one question, which of them
is beaten, so that their speeds and losses are one family. An interval is not corrected; a finding rests on p-values
that are corrected for the whole family. Each question has hypotheses that exclude each other, such as "as fast" and
"faster by the margin". Rejecting one of them is a finding. No theorem proves that a difference is then shown on its
true side if tests depend on each other. Simulated studies show it (``benchmarks/report_statistics.py``); they count a
wrong side as false.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, TypeVar

from hpcbench.report.significance import holm, pairs_needed
from hpcbench.report.statistics import Interval, Mean, mean_of

LEVEL = 0.05
"""Largest probability that a family holds a false finding."""

Speed = Literal["faster", "not faster", "not shown"]
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
    adjusted: float
    """The p-value after Holm's method, for all schemes and hypotheses of the family."""

    @property
    def rejects(self) -> bool:
        """Whether the hypothesis is rejected."""
        return self.adjusted < LEVEL


@dataclass(frozen=True)
class SpeedFinding(Interval):
    """Samples/s divided by the baseline's, or by another scheme's. A single pair has no p-values."""

    margin: float
    """Margin of the speed as a part of 1. A smaller gain does not count as faster."""
    equal: PValue | None
    """The p-value of the hypothesis that the ratio is 1, two-sided."""
    at_margin: PValue | None
    """The p-value of the hypothesis that the ratio is ``1 + margin``, two-sided."""
    enough: int | None
    """Number of pairs that would probably show more; None if something is shown, or if no number can be given."""
    at_slower: PValue | None = None
    """The p-value of the hypothesis that the ratio is ``1 / (1 + margin)``, two-sided; None if this is not tested."""

    @property
    def shown(self) -> Speed:
        """Whether the ratio is shown to be above 1 or, if not that, below ``1 + margin``."""
        if self.equal is not None and self.equal.rejects:
            return "faster" if self.estimate > 1 else "not faster"
        below = self.at_margin is not None and self.at_margin.rejects and self.estimate < 1 + self.margin
        return "not faster" if below else "not shown"

    @property
    def slower(self) -> bool:
        """Whether the ratio is shown to be below 1."""
        return self.equal is not None and self.equal.rejects and self.estimate < 1

    @property
    def as_fast(self) -> bool:
        """Whether the ratio is shown to be above ``1 / (1 + margin)``."""
        above = self.at_slower is not None and self.at_slower.rejects and self.estimate * (1 + self.margin) > 1
        return above or self.shown == "faster"

    def turned(self) -> "SpeedFinding":
        """The same finding seen from the other scheme."""
        ends = [None if end is None else _inverse(end) for end in (self.estimate, self.high, self.low)]
        return SpeedFinding(
            ends[0] or 0.0, ends[1], ends[2], self.pairs, self.margin, self.equal, self.at_slower, None, self.at_margin
        )


@dataclass(frozen=True)
class LossFinding(Interval):
    """Loss minus the baseline's, or minus another scheme's. A single pair has no p-values."""

    margin: float
    """Difference that counts as none."""
    equal: PValue | None
    """The p-value of the hypothesis that there is no difference, two-sided."""
    apart: PValue | None
    """The p-value of the hypothesis that the difference is `margin` or more: two one-sided tests."""
    enough: int | None
    """Number of pairs that would probably show more; None if something is shown, or if no number can be given."""

    @property
    def shown(self) -> Loss:
        """Whether the difference is shown to lie within the margin or, if not that, on one side of 0."""
        if self.apart is not None and self.apart.rejects:
            return "as good"
        return self.side or "not shown"

    @property
    def side(self) -> Literal["better", "worse"] | None:
        """The side of 0 on which the difference is shown to lie, even if it is within the margin."""
        if self.equal is None or not self.equal.rejects:
            return None
        return "worse" if self.estimate > 0 else "better"

    def turned(self) -> "LossFinding":
        """The same finding seen from the other scheme."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return LossFinding(-self.estimate, low, high, self.pairs, self.margin, self.equal, self.apart, None)


def speeds(family: Family[Key], margin: float) -> dict[Key, SpeedFinding]:
    """Compare samples/s with the baseline's.

    Raises
    ------
    ValueError
        A scheme has no pairs, or a value is not positive and finite.
    """
    limit = math.log1p(margin)
    means = _log_ratios(family)
    p = _adjusted({scheme: (mean.p_two_sided(), mean.p_two_sided(limit)) for scheme, mean in _tested(means)})
    found = {}
    for scheme, mean in means.items():
        equal, at_margin = p.get(scheme, (None, None))
        finding = SpeedFinding(*_parts(mean.interval().exp()), margin, equal, at_margin, None)
        if finding.shown == "not shown" and scheme in p:
            side = LEVEL / 2 / len(p)
            finding = replace(finding, enough=_enough(mean, (mean.estimate, side), (limit - mean.estimate, side)))
        found[scheme] = finding
    return found


def losses(family: Family[Key], part: float) -> dict[Key, LossFinding]:
    """Compare losses with the baseline's.

    Parameters
    ----------
    family
        Losses in pairs.
    part
        The margin, as a part of the baseline's mean loss.

    Raises
    ------
    ValueError
        A scheme has no pairs, or a value is not finite.
    """
    margins = {scheme: part * abs(fmean(other for _, other in pairs)) for scheme, pairs in family.items()}
    means = _differences(family)
    p = _adjusted({scheme: (mean.p_two_sided(), mean.p_within(margins[scheme])) for scheme, mean in _tested(means)})
    found = {}
    for scheme, mean in means.items():
        equal, apart = p.get(scheme, (None, None))
        finding = LossFinding(*_parts(mean.interval()), margins[scheme], equal, apart, None)
        if finding.shown == "not shown" and scheme in p:
            size, level = abs(mean.estimate), LEVEL / len(p)
            finding = replace(finding, enough=_enough(mean, (size, level / 2), (margins[scheme] - size, level)))
        found[scheme] = finding
    return found


def both(
    speed: Family[Key], loss: Family[Key], margin: float, part: float
) -> tuple[dict[Key, SpeedFinding], dict[Key, LossFinding]]:
    """Compare schemes with each other. Speeds and losses are one family, and findings can be turned.

    A speed has three hypotheses that exclude each other: as fast, faster by the margin, slower by the margin.

    Parameters
    ----------
    speed, loss
        Values by pair of schemes.
    margin
        Margin of the speed, as a part of 1.
    part
        The margin of the loss, as a part of the mean loss of both schemes.

    Raises
    ------
    ValueError
        A pair of schemes has no pairs of runs, a value is not finite, or a speed is not positive.
    """
    limit = math.log1p(margin)
    margins = {key: part * abs(fmean(value for pair in pairs for value in pair)) for key, pairs in loss.items()}
    ratios, changes = _log_ratios(speed), _differences(loss)
    p = _adjusted(
        {
            **{
                ("speed", key): (mean.p_two_sided(), mean.p_two_sided(limit), mean.p_two_sided(-limit))
                for key, mean in _tested(ratios)
            },
            **{("loss", key): (mean.p_two_sided(), mean.p_within(margins[key])) for key, mean in _tested(changes)},
        }
    )
    speeds_found, losses_found = {}, {}
    for key, mean in ratios.items():
        equal, at_margin, at_slower = p.get(("speed", key), (None, None, None))
        parts = _parts(mean.interval().exp())
        speeds_found[key] = SpeedFinding(*parts, margin, equal, at_margin, None, at_slower)
    for key, mean in changes.items():
        equal, apart = p.get(("loss", key), (None, None))
        losses_found[key] = LossFinding(*_parts(mean.interval()), margins[key], equal, apart, None)
    return speeds_found, losses_found


def _log_ratios(family: Family[Key]) -> dict[Key, Mean]:
    return {key: mean_of([math.log(a) - math.log(b) for a, b in pairs]) for key, pairs in family.items()}


def _differences(family: Family[Key]) -> dict[Key, Mean]:
    return {key: mean_of([a - b for a, b in pairs]) for key, pairs in family.items()}


def _inverse(x: float) -> float:
    return 1 / x if x else math.inf


def _parts(interval: Interval) -> tuple[float, float | None, float | None, int]:
    return interval.estimate, interval.low, interval.high, interval.pairs


def _tested(means: Mapping[Key, Mean]) -> list[tuple[Key, Mean]]:
    """Means of two pairs or more. A single pair has no scatter and does not count in the family."""
    return [(scheme, mean) for scheme, mean in means.items() if mean.error is not None]


def _adjusted(p: Mapping[Key, tuple[float, ...]]) -> dict[Key, tuple[PValue, ...]]:
    adjusted = holm(list(p.values()))
    return {
        key: tuple(PValue(*values) for values in zip(raw, own, strict=True))
        for (key, raw), own in zip(p.items(), adjusted, strict=True)
    }


def _enough(mean: Mean, *aims: tuple[float, float]) -> int | None:
    """Number of pairs for the aim that needs the fewest, more than there are. Each aim is a distance and a level."""
    scatter = (mean.error or 0.0) * math.sqrt(mean.count)
    known = [count for distance, level in aims if (count := pairs_needed(distance, scatter, level)) is not None]
    return max(min(known), mean.count + 1) if known else None
