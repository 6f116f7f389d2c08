"""What pairs of runs show of each scheme: intervals, p-values, and what these allow to be said.

A family is what one call is given: all schemes of a cell that are asked the same question. Intervals are each for
itself; what is shown rests on p-values that are corrected for the whole family. Each question has two hypotheses that
exclude each other, such as "as fast" and "faster by the margin": to reject either is to show something. That a
difference is also shown to lie on its true side follows from no theorem where tests depend on each other; simulated
studies say so (``benchmarks/report_statistics.py``), which count a wrong side as false.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from hpcbench.report.statistics import Interval, Mean, holm, mean_of, pairs_needed

LEVEL = 0.05
"""Probability with which a family may hold a finding that is false."""

Speed = Literal["faster", "not faster", "not shown"]
Loss = Literal["better", "as good", "worse", "not shown"]
Family = Mapping[str, Sequence[tuple[float, float]]]
"""Of each scheme, its value and the baseline's in each pair; one or more pairs."""


@dataclass(frozen=True)
class PValue:
    """Probability of what was seen, or of more, if the hypothesis were true."""

    raw: float
    adjusted: float
    """By Holm's method, for all schemes and hypotheses of the family."""

    @property
    def rejects(self) -> bool:
        """Whether the hypothesis is given up."""
        return self.adjusted < LEVEL


@dataclass(frozen=True)
class SpeedFinding(Interval):
    """Samples/s over the baseline's. One pair has no p-values."""

    margin: float
    """What is less than this faster is not faster, as a part of 1."""
    equal: PValue | None
    """Of the hypothesis that the ratio is 1, two-sided."""
    at_margin: PValue | None
    """Of the hypothesis that the ratio is ``1 + margin``, two-sided."""
    enough: int | None
    """Pairs that would probably show more, where nothing is shown; None where no such number can be given."""

    @property
    def shown(self) -> Speed:
        """Whether the ratio is shown to be above 1, or else below ``1 + margin``."""
        if self.equal is not None and self.equal.rejects:
            return "faster" if self.estimate > 1 else "not faster"
        below = self.at_margin is not None and self.at_margin.rejects and self.estimate < 1 + self.margin
        return "not faster" if below else "not shown"

    @property
    def slower(self) -> bool:
        """Whether the ratio is shown to be below 1."""
        return self.equal is not None and self.equal.rejects and self.estimate < 1


@dataclass(frozen=True)
class LossFinding(Interval):
    """Loss minus the baseline's. One pair has no p-values."""

    margin: float
    """Difference that is as good as none."""
    equal: PValue | None
    """Of the hypothesis that there is no difference, two-sided."""
    apart: PValue | None
    """Of the hypothesis that the difference is `margin` or more: two one-sided tests."""
    enough: int | None
    """Pairs that would probably show more, where nothing is shown; None where no such number can be given."""

    @property
    def shown(self) -> Loss:
        """Whether the difference is shown to lie within the margin, or else on one side of 0."""
        if self.apart is not None and self.apart.rejects:
            return "as good"
        return self.side or "not shown"

    @property
    def side(self) -> Literal["better", "worse"] | None:
        """On which side of 0 the difference is shown to lie, be it within the margin."""
        if self.equal is None or not self.equal.rejects:
            return None
        return "worse" if self.estimate > 0 else "better"


def speeds(family: Family, margin: float) -> dict[str, SpeedFinding]:
    """Compare samples/s.

    Raises
    ------
    ValueError
        A scheme without pairs, or a value that is not positive and finite.
    """
    limit = math.log1p(margin)
    means = {scheme: mean_of([math.log(a) - math.log(b) for a, b in pairs]) for scheme, pairs in family.items()}
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


def losses(family: Family, part: float) -> dict[str, LossFinding]:
    """Compare losses.

    Parameters
    ----------
    family
        Losses in pairs.
    part
        The margin, as a part of the baseline's mean loss.

    Raises
    ------
    ValueError
        A scheme without pairs, or a value that is not finite.
    """
    margins = {scheme: part * abs(fmean(other for _, other in pairs)) for scheme, pairs in family.items()}
    means = {scheme: mean_of([a - b for a, b in pairs]) for scheme, pairs in family.items()}
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


def _parts(interval: Interval) -> tuple[float, float | None, float | None, int]:
    return interval.estimate, interval.low, interval.high, interval.pairs


def _tested(means: Mapping[str, Mean]) -> list[tuple[str, Mean]]:
    """Schemes of two pairs or more: one tells no scatter, and does not count in the family."""
    return [(scheme, mean) for scheme, mean in means.items() if mean.error is not None]


def _adjusted(p: dict[str, tuple[float, float]]) -> dict[str, tuple[PValue, PValue]]:
    adjusted = holm(list(p.values()))
    return {
        scheme: (PValue(raw[0], own[0]), PValue(raw[1], own[1]))
        for (scheme, raw), own in zip(p.items(), adjusted, strict=True)
    }


def _enough(mean: Mean, *aims: tuple[float, float]) -> int | None:
    """Pairs, more than there are, for the aim that needs the fewest: each a distance to cover, and a level."""
    scatter = (mean.error or 0.0) * math.sqrt(mean.count)
    known = [count for distance, level in aims if (count := pairs_needed(distance, scatter, level)) is not None]
    return max(min(known), mean.count + 1) if known else None
