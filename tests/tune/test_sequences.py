"""Tests of confidence sequences: coverage under repeated looks, and the definition of their likelihood ratio."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from hpcbench.tune.effects import Effects
from hpcbench.tune.sequences import SPREAD, find_critical_t


def _compute_likelihood_ratio(t: float, factor: float, freedom: float) -> float:
    r = 1 + SPREAD / factor
    return r**-0.5 * ((1 + t**2 / freedom) / (1 + t**2 / (freedom * r))) ** ((freedom + 1) / 2)


@pytest.mark.parametrize(("factor", "freedom"), [(1.0, 3), (0.5, 6), (0.2, 20)])
def test_the_ratio_is_that_of_a_normal_mixture(factor: float, freedom: int) -> None:
    """The likelihood ratio of t, for an effect of variance SPREAD * sigma**2 against no effect, equals an integral."""
    for t in (0.0, 1.5, 4.0):

        def integrand(effect: float, t: float = t) -> float:
            density = stats.nct.pdf(t, freedom, effect / math.sqrt(factor))
            return float(density * stats.norm.pdf(effect, scale=math.sqrt(SPREAD)))

        mixed, _ = integrate.quad(integrand, -30, 30, limit=200, points=[0, t * math.sqrt(factor)])
        expected = mixed / stats.t.pdf(t, freedom)
        assert _compute_likelihood_ratio(t, factor, freedom) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("level", [0.01, 0.05, 0.1])
def test_the_critical_t_has_the_ratio_of_the_level(level: float) -> None:
    critical = find_critical_t(level, 0.5, 6)
    assert _compute_likelihood_ratio(critical, 0.5, 6) == pytest.approx(1 / level)
    assert find_critical_t(level, 2.0, 0) == math.inf
    with pytest.raises(ValueError, match="between 0 and 1"):
        find_critical_t(0.0, 1.0, 3)


def _looks(draw: np.random.Generator, rounds: int, arms: int) -> list[dict[str, float]]:
    place = draw.normal(size=(rounds, 1)) * 5
    values = place + draw.normal(size=(rounds, arms)) * 0.01
    return [dict(zip("abcd", map(float, row), strict=False)) for row in values]


def test_looking_after_every_round_keeps_the_level() -> None:
    """In at most 5 % of cases, the interval excludes a true difference of 0 at any look.

    Student's interval does so far more often.
    """
    draw, sequences, fixed, studies = np.random.default_rng(7), 0, 0, 400
    for _ in range(studies):
        rounds = _looks(draw, 14, 3)
        looks = [Effects(rounds[:count], "a").difference("b") for count in range(2, 15)]
        intervals = [look.sequence(0.05) for look in looks if look]
        sequences += any(each.low > 0 or each.high < 0 for each in intervals if each.low is not None and each.high)
        fixed += any(abs(look.estimate) > stats.t.ppf(0.975, look.freedom) * look.error for look in looks if look)
    assert sequences / studies <= 0.05 < 0.12 < fixed / studies


def test_dropping_the_slower_arms_keeps_the_level() -> None:
    """The design depends on the data. After each round, only the arms that look fastest continue."""
    draw, errors, studies = np.random.default_rng(11), 0, 400
    for _ in range(studies):
        rounds = _looks(draw, 10, 4)
        seen: list[dict[str, float]] = []
        wrong = False
        for each in rounds:
            effects = Effects(seen, "a")
            ranked = sorted("bcd", key=lambda name: d.estimate if (d := effects.difference(name)) else 0.0)
            arms = {"a", *ranked[: 3 if len(seen) < 2 else 1]}
            seen.append({name: value for name, value in each.items() if name in arms})
            difference = Effects(seen, "a").difference(ranked[0])
            if difference and difference.freedom:
                interval = difference.sequence(0.05)
                wrong |= not (interval.low or 0) <= 0 <= (interval.high or 0)
        errors += wrong
    assert errors / studies <= 0.05


def test_effects_are_those_of_least_squares() -> None:
    rounds = [{"a": 1.0, "b": 2.0, "c": 4.0}, {"a": 5.0, "b": 6.5}, {"a": 0.0, "c": 2.5}]
    effects = Effects(rounds, "a")
    rows = [(i, name, value) for i, each in enumerate(rounds) for name, value in each.items()]
    design = np.array([[i == k for k in range(3)] + [name == other for other in "bc"] for i, name, _ in rows], float)
    values = np.array([value for _, _, value in rows])
    solution, residual, _, _ = np.linalg.lstsq(design, values, rcond=None)
    covariance = np.linalg.inv(design.T @ design)
    between = effects.difference("c", "b")
    assert between is not None and between.estimate == pytest.approx(solution[4] - solution[3])
    assert between.factor == pytest.approx(covariance[4, 4] + covariance[3, 3] - 2 * covariance[3, 4])
    assert effects.freedom == 2 and effects.variance == pytest.approx(float(residual[0]) / 2)
    assert effects.difference("d") is None
