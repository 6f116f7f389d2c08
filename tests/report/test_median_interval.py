"""The bootstrap interval of a median against all resamples there are, and its coverage."""

import itertools
import random
from collections import Counter
from statistics import median

import pytest

from hpcbench.report.statistics import Interval, lower_rank, median_interval, values_a_count


def resampled(n: int) -> tuple[Counter[int], Counter[int]]:
    """How often each rank is the lower and the upper middle value of a resample, over all n**n."""
    lower: Counter[int] = Counter()
    upper: Counter[int] = Counter()
    for draws in itertools.product(range(n), repeat=n):
        ordered = sorted(draws)
        lower[ordered[(n - 1) // 2]] += 1
        upper[ordered[n // 2]] += 1
    return lower, upper


def rank_at(counts: Counter[int], part: float) -> int:
    """The least rank that so large a part of the resamples does not exceed."""
    total = sum(counts.values())
    below = 0
    for rank in sorted(counts):
        below += counts[rank]
        if below >= part * total:
            return rank
    raise AssertionError


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7])
def test_ranks_are_those_of_all_resamples(n: int) -> None:
    lower, upper = resampled(n)
    for tail in (0.025, 0.1, 0.25):
        assert lower_rank(n, tail) == rank_at(lower, tail)
        # The other end is the same rank from above.
        assert n - 1 - lower_rank(n, tail) == rank_at(upper, 1 - tail)


def test_ranks_of_many_are_the_normal_approximation() -> None:
    # n/2 - 1.96 sqrt(n)/2, to a rank
    for n in (100, 1001, 10_000):
        assert lower_rank(n) == pytest.approx(n / 2 - 1.959964 * n**0.5 / 2, abs=1.5)


def test_an_interval_by_hand() -> None:
    # Of 7 values, the second least and the second greatest: the least is the median of 1 in 99 resamples only.
    found = median_interval([5.0, 1.0, 4.0, 2.0, 7.0, 3.0, 6.0])
    assert (found.estimate, found.pairs) == (4.0, 7)
    assert (found.low, found.high) == (2.0, 6.0)


def test_a_few_steps_have_no_interval() -> None:
    assert median_interval([3.0, 1.0, 2.0, 2.0, 9.0]) == Interval(2.0, None, None, 5)
    for values in ([], [1.0, float("nan")]):
        with pytest.raises(ValueError, match="finite"):
            median_interval(values)


def test_equal_steps_have_an_interval_of_no_width() -> None:
    assert median_interval([0.25] * 40) == Interval(0.25, 0.25, 0.25, 40)


def test_steps_that_follow_each_other_count_less() -> None:
    ups_and_downs = [1.0, 2.0] * 50
    assert values_a_count(ups_and_downs, 1.5) == 1.0
    # 100 values that change sides 9 times: 90 neighbours alike, 9 not.
    blocks = [1.0 + k // 10 % 2 for k in range(100)]
    assert values_a_count(blocks, 1.5) == 10.0
    drift = median_interval([float(k) for k in range(100)])
    assert (drift.low, drift.high) == (0.0, 99.0)


def test_coverage_of_steps_with_and_without_memory() -> None:
    """Without the widening, the intervals of the last row would hold the median in 59 of 100 runs."""
    rng = random.Random(4)
    for memory, least in ((0.0, 0.93), (0.5, 0.92), (0.8, 0.90)):
        covered = 0
        for _ in range(400):
            values = [rng.gauss(0, 1)]
            for _ in range(199):
                values.append(memory * values[-1] + (1 - memory**2) ** 0.5 * rng.gauss(0, 1))
            found = median_interval(values)
            assert found.low is not None and found.high is not None and found.estimate == median(values)
            covered += found.low <= 0 <= found.high
        assert least <= covered / 400 <= 0.985
