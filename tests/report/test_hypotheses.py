"""Tests of p-values, corrections and sample sizes, against SciPy 1.17.1, statsmodels 0.15.0 and definitions."""

import itertools
import math
import random

import pytest

from hpcbench.report.looks import LOOKS, compute_level_part, find_next_look, is_sufficient
from hpcbench.report.significance import holm
from hpcbench.report.statistics import Interval, estimate_mean, mean_interval, welch

VALUES = [0.3, 1.1, -0.2, 0.9, 0.5]


def test_p_values_are_scipys() -> None:
    # stats.ttest_1samp(VALUES, 0), the same with alternative="greater", and stats.ttest_1samp(VALUES, 1)
    assert estimate_mean(VALUES).p_two_sided() == pytest.approx(0.08557339864849767, rel=1e-12)
    assert estimate_mean(VALUES).p_greater() == pytest.approx(0.042786699324248834, rel=1e-12)
    assert estimate_mean(VALUES).p_two_sided(1) == pytest.approx(0.10401792440382385, rel=1e-12)
    assert estimate_mean(VALUES).p_less(1) == pytest.approx(0.10401792440382385 / 2, rel=1e-12)


def test_equivalence_is_statsmodels() -> None:
    # DescrStatsW(VALUES).ttost_mean(-1, 1)
    assert estimate_mean(VALUES).p_within(1) == pytest.approx(0.052008962201911924, rel=1e-12)
    mirrored = [-value for value in VALUES]
    assert estimate_mean(mirrored).p_within(1) == pytest.approx(0.052008962201911924, rel=1e-12)


def test_equivalence_is_the_90_percent_interval_within_the_margin() -> None:
    rng = random.Random(1)
    both = set()
    for _ in range(200):
        values = [rng.gauss(0.2, 0.5) for _ in range(rng.randint(2, 8))]
        interval = mean_interval(values, 0.90)
        assert interval.low is not None and interval.high is not None
        within = interval.low > -0.6 and interval.high < 0.6
        assert (estimate_mean(values).p_within(0.6) < 0.05) == within
        both.add(within)
    assert both == {True, False}


def test_a_difference_is_what_the_95_percent_interval_excludes() -> None:
    rng = random.Random(2)
    for _ in range(200):
        values = [rng.gauss(0.4, 0.5) for _ in range(rng.randint(2, 8))]
        interval = mean_interval(values)
        assert interval.low is not None and interval.high is not None
        assert (estimate_mean(values).p_two_sided(0.1) < 0.05) == (not interval.low <= 0.1 <= interval.high)


def test_values_without_scatter() -> None:
    twice = estimate_mean([2.0, 2.0])
    assert (twice.p_two_sided(2.0), twice.p_two_sided(1.0)) == (1.0, 0.0)
    assert (twice.t(3.0), twice.t(2.0)) == (-math.inf, 0.0)
    # Losses of a lossless codec are identical.
    assert estimate_mean([0.0, 0.0, 0.0]).p_within(0.01) == 0.0
    assert estimate_mean([0.0, 0.0, 0.0]).p_within(0.0) == 0.5


def test_one_value_is_no_sample() -> None:
    for lone in (estimate_mean([1.0]), welch([1.0], [1.0, 2.0])):
        assert lone.interval() == Interval(lone.estimate, None, None, 1)
        for test in (lone.t, lone.p_two_sided, lone.p_greater, lone.p_less, lone.p_within):
            with pytest.raises(ValueError, match="two values"):
                test(0.5)


def test_welch_agrees_with_a_published_example() -> None:
    """R's ``t.test(extra ~ group, data = sleep)``: t = -1.8608, df = 17.776, p = 0.07939, -3.3654832 to 0.2054832."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    result = welch(first, second)
    assert (result.t(), result.freedom) == pytest.approx((-1.8608, 17.776), rel=1e-4)
    assert result.p_two_sided() == pytest.approx(0.07939, rel=1e-3)
    interval = result.interval()
    assert (interval.low, interval.high) == pytest.approx((-3.3654832, 0.2054832), rel=1e-6)
    # The same data in pairs: t = -4.0621, df = 9, p = 0.002833.
    assert estimate_mean([x - y for x, y in zip(first, second, strict=True)]).p_two_sided() == pytest.approx(
        0.002833, rel=1e-3
    )


def test_welchs_freedom_does_not_depend_on_the_unit() -> None:
    """Squares of tiny variances underflow to 0, which would be a divisor."""
    first, second = [1.0, 2.0, 4.0], [1.0, 1.5, 7.0, 3.0]
    tiny = welch([1e-85 * x for x in first], [1e-85 * x for x in second])
    assert tiny.freedom == pytest.approx(welch(first, second).freedom, rel=1e-9)


def adjusted(*p: float) -> list[float]:
    return [p_value for (p_value,) in holm([[value] for value in p])]


def test_holm_by_hand() -> None:
    # 5 x 0.005, 4 x 0.01, 3 x 0.03, then never less: multipletests(p, method="holm") gives the same.
    assert adjusted(0.01, 0.04, 0.03, 0.005, 0.2) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.2], rel=1e-15)
    assert adjusted(0.6, 0.7) == [1.0, 1.0]
    assert adjusted() == []


def closed(p: list[list[float]]) -> list[list[float]]:
    """Compute adjusted p-values by definition.

    The result is the largest Bonferroni-adjusted p-value over all sets of hypotheses that may be true together.
    """
    names = [(i, j) for i, group in enumerate(p) for j in range(len(group))]
    selected = [[0.0] * len(group) for group in p]
    for choice in itertools.product(*([None, *range(len(group))] for group in p)):
        true = [(i, j) for i, j in enumerate(choice) if j is not None]
        if true:
            bonferroni = min(1.0, len(true) * min(p[i][j] for i, j in true))
            for i, j in true:
                selected[i][j] = max(selected[i][j], bonferroni)
    assert len(names) == sum(map(len, p))
    return selected


def test_holm_is_never_bolder_than_closed_testing() -> None:
    """The result is the same if groups have one hypothesis (Marcus, Peritz and Gabriel, Biometrika 63, 1976)."""
    rng = random.Random(3)
    for _ in range(200):
        p = [[rng.random() ** 3 for _ in range(rng.randint(1, 2))] for _ in range(rng.randint(1, 4))]
        for p_value, least in zip(itertools.chain(*holm(p)), itertools.chain(*closed(p)), strict=True):
            assert p_value >= least * (1 - 1e-15)
        single = [group[:1] for group in p]
        assert list(itertools.chain(*holm(single))) == pytest.approx(list(itertools.chain(*closed(single))))


def test_a_group_counts_once_until_all_of_it_is_rejected() -> None:
    assert holm([[0.01, 0.02], [0.03, 0.5]]) == [[0.02, 0.04], [0.04, 0.5]]


@pytest.mark.parametrize(
    ("distance", "level", "exact"),
    # statsmodels' TTestPower().solve_power(effect_size=distance, alpha=level, power=0.8, alternative="larger")
    [(1.0, 0.025, 9.94), (0.5, 0.025, 33.37), (1.0, 0.05, 7.73), (2.0, 0.00625, 6.02)],
)
def test_pairs_that_suffice_are_within_one_of_the_exact_number(distance: float, level: float, exact: float) -> None:
    fewest = next(n for n in itertools.count(2) if is_sufficient(n, distance, 1.0, level))
    assert abs(fewest - math.ceil(exact)) <= 1


def test_no_number_of_pairs_shows_nothing() -> None:
    assert find_next_look(0.0, 1.0, 0.05, 3) is None
    assert find_next_look(-1.0, 1.0, 0.05, 3) is None
    assert find_next_look(0.1, 1.0, 0.05, 3) is None
    assert find_next_look(1.0, 1.0, 0.0, 3) is None
    assert find_next_look(1.0, 0.0, 0.05, 3) == 5


def test_the_next_look_is_the_first_that_suffices() -> None:
    for pairs, distance in itertools.product((2, 3, 4, 8, 29), (0.3, 0.7, 1.0, 2.0, 4.0)):
        look = find_next_look(distance, 1.0, 0.05, pairs)
        later = [n for n in LOOKS if n > pairs]
        enough = [n for n in later if is_sufficient(n, distance, 1.0, 0.05 * compute_level_part(n))]
        assert look == (enough[0] if enough else None)


def test_the_looks_divide_the_level() -> None:
    assert sum(map(compute_level_part, LOOKS)) == pytest.approx(1.0)
    # A number of pairs between two looks counts as the later look, and a number beyond the last look as the last.
    assert [compute_level_part(n) for n in (2, 3, 4, 5, 6, 100, 1000)] == [0.6, 0.6, 0.2, 0.2, 0.1, 0.005, 0.005]
