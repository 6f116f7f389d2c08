"""Tests of intervals, compared with calculations by hand."""

import math

import pytest

from hpcbench.report.statistics import Interval, mean_interval, paired_difference, paired_ratio


def test_interval_by_hand() -> None:
    # mean 2, s = 1, n = 3: half-width 4.302652730 / sqrt(3) = 2.484137712
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.estimate == 2.0
    assert interval.low == pytest.approx(2 - 2.484137712, abs=1e-8)
    assert interval.high == pytest.approx(2 + 2.484137712, abs=1e-8)


def test_one_pair_has_no_interval() -> None:
    assert paired_difference([3.0], [2.0]) == Interval(1.0, None, None, 1)
    assert paired_ratio([3.0], [2.0]) == Interval(pytest.approx(1.5), None, None, 1)


def test_ratio_by_hand() -> None:
    # logs 0 and ln 4: mean ln 2, s = ln 4 / sqrt 2, half-width 12.706204736 * ln 4 / 2 = 8.807269...
    result = paired_ratio([5.0, 8.0], [5.0, 2.0])
    half = 12.706204736 * math.log(4) / 2
    assert result.estimate == pytest.approx(2.0)
    assert result.low == pytest.approx(2 * math.exp(-half), rel=1e-8)
    assert result.high == pytest.approx(2 * math.exp(half), rel=1e-8)


def test_a_ratio_and_its_inverse_agree() -> None:
    a, b = [1.0, 1.1, 0.9], [0.8, 0.9, 0.7]
    there, back = paired_ratio(a, b), paired_ratio(b, a)
    assert there.low is not None and back.high is not None
    assert there.estimate == pytest.approx(1 / back.estimate)
    assert there.low == pytest.approx(1 / back.high)


def test_pairing_takes_out_what_pairs_share() -> None:
    machine = [1.0, 3.0, 9.0]
    result = paired_ratio([1.1 * m for m in machine], machine)
    assert result.low == pytest.approx(1.1) and result.high == pytest.approx(1.1)
    # The same values in other pairs give no finding.
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
