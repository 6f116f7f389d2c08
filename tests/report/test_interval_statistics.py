"""Student's t against printed tables, intervals against arithmetic by hand."""

import math

import pytest

from hpcbench.report.significance import incomplete_beta, student_t_cdf, student_t_quantile
from hpcbench.report.statistics import Interval, mean_interval, paired_difference, paired_ratio

# Critical values of Student's t to three decimals: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
TABLE = {
    # df: 0.90, 0.95, 0.975, 0.99, 0.995
    1: (3.078, 6.314, 12.706, 31.821, 63.657),
    2: (1.886, 2.920, 4.303, 6.965, 9.925),
    3: (1.638, 2.353, 3.182, 4.541, 5.841),
    4: (1.533, 2.132, 2.776, 3.747, 4.604),
    5: (1.476, 2.015, 2.571, 3.365, 4.032),
    9: (1.383, 1.833, 2.262, 2.821, 3.250),
    10: (1.372, 1.812, 2.228, 2.764, 3.169),
    30: (1.310, 1.697, 2.042, 2.457, 2.750),
    100: (1.290, 1.660, 1.984, 2.364, 2.626),
}


@pytest.mark.parametrize("df", TABLE)
def test_quantiles_are_those_of_the_table(df: int) -> None:
    for p, value in zip((0.90, 0.95, 0.975, 0.99, 0.995), TABLE[df], strict=True):
        assert round(student_t_quantile(p, df), 3) == value


def exact_quantile(p: float, df: int) -> float:
    """Closed forms for 1, 2 and 4 degrees of freedom (Shaw, Journal of Computational Finance 9(4), 2006)."""
    if df == 1:
        return math.tan(math.pi * (p - 0.5))
    a = 4 * p * (1 - p)
    if df == 2:
        return 2 * (p - 0.5) * math.sqrt(2 / a)
    q = math.cos(math.acos(math.sqrt(a)) / 3) / math.sqrt(a)
    return math.copysign(2 * math.sqrt(q - 1), p - 0.5)


@pytest.mark.parametrize("df", [1, 2, 4])
@pytest.mark.parametrize("p", [0.001, 0.025, 0.2, 0.4999, 0.75, 0.975, 0.995, 0.9999])
def test_quantiles_are_the_closed_forms(df: int, p: float) -> None:
    assert student_t_quantile(p, df) == pytest.approx(exact_quantile(p, df), rel=1e-9)


@pytest.mark.parametrize("df", [1, 2, 3, 7, 30, 1000])
def test_quantile_is_the_inverse_of_the_distribution(df: int) -> None:
    for p in (1e-6, 0.01, 0.3, 0.6, 0.975, 0.999999):
        assert student_t_cdf(student_t_quantile(p, df), df) == pytest.approx(p, rel=1e-9)
    assert student_t_cdf(0.0, df) == 0.5


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert student_t_quantile(0.975, 1e7) == pytest.approx(1.959963984540054, abs=1e-6)


def test_incomplete_beta_closed_forms() -> None:
    # I_x(a, 1) = x^a, I_x(1, b) = 1 - (1-x)^b
    for x in (0.0, 0.01, 0.5, 0.99, 1.0):
        assert incomplete_beta(3.5, 1, x) == pytest.approx(x**3.5, rel=1e-12, abs=1e-300)
        assert incomplete_beta(1, 2.5, x) == pytest.approx(1 - (1 - x) ** 2.5, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (0.5, 0), (math.nan, 3)])
def test_no_quantile_of_nonsense(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        student_t_quantile(p, df)


def test_interval_by_hand() -> None:
    # mean 2, s = 1, n = 3: half-width 4.302652730 / sqrt(3) = 2.484137712
    found = mean_interval([1.0, 2.0, 3.0])
    assert found.estimate == 2.0
    assert found.low == pytest.approx(2 - 2.484137712, abs=1e-8)
    assert found.high == pytest.approx(2 + 2.484137712, abs=1e-8)


def test_one_pair_has_no_interval() -> None:
    assert paired_difference([3.0], [2.0]) == Interval(1.0, None, None, 1)
    assert paired_ratio([3.0], [2.0]) == Interval(pytest.approx(1.5), None, None, 1)


def test_ratio_by_hand() -> None:
    # logs 0 and ln 4: mean ln 2, s = ln 4 / sqrt 2, half-width 12.706204736 * ln 4 / 2 = 8.807269...
    found = paired_ratio([5.0, 8.0], [5.0, 2.0])
    half = 12.706204736 * math.log(4) / 2
    assert found.estimate == pytest.approx(2.0)
    assert found.low == pytest.approx(2 * math.exp(-half), rel=1e-8)
    assert found.high == pytest.approx(2 * math.exp(half), rel=1e-8)


def test_a_ratio_and_its_inverse_agree() -> None:
    a, b = [1.0, 1.1, 0.9], [0.8, 0.9, 0.7]
    there, back = paired_ratio(a, b), paired_ratio(b, a)
    assert there.low is not None and back.high is not None
    assert there.estimate == pytest.approx(1 / back.estimate)
    assert there.low == pytest.approx(1 / back.high)


def test_pairing_takes_out_what_pairs_share() -> None:
    machine = [1.0, 3.0, 9.0]
    found = paired_ratio([1.1 * m for m in machine], machine)
    assert found.low == pytest.approx(1.1) and found.high == pytest.approx(1.1)
    # The same values in other pairs tell nothing.
    swapped = paired_ratio([1.1 * m for m in reversed(machine)], machine)
    assert swapped.low is not None and swapped.low < 0.1


def test_values_that_cannot_be_compared() -> None:
    for bad in ([0.0, 1.0], [-1.0, 1.0], [math.nan, 1.0], [math.inf, 1.0]):
        with pytest.raises(ValueError, match="positive"):
            paired_ratio(bad, [1.0, 1.0])
    for values in ([], [math.nan]):
        with pytest.raises(ValueError, match="finite"):
            mean_interval(values)
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0], [1.0, 2.0])
