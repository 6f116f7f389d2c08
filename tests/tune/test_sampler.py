"""Tests of posterior samples, compared with solutions in closed form and by integration."""

import numpy as np
import pytest

from hpcbench.tune.sampler import Array, sample_posterior

COUNT = 4000


def _log_normal(draws: Array) -> Array:
    return np.asarray(-0.5 * (draws**2).sum(axis=1))


def test_a_linear_model_has_the_posterior_of_a_regression() -> None:
    random = np.random.default_rng(5)
    uses = random.standard_normal((4, 3))
    values, scatter = np.array([2.0, -1.0, 0.5, 1.5]), 0.05
    precision = np.eye(3) + uses.T @ uses / scatter**2
    mean = np.linalg.solve(precision, uses.T @ values / scatter**2)

    def log_likelihood(draws: Array) -> Array:
        return np.asarray(-0.5 * ((values - draws @ uses.T) ** 2).sum(axis=1) / scatter**2)

    draws = sample_posterior(random.standard_normal((COUNT, 3)), _log_normal, log_likelihood, 1)
    deviations = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.abs((draws.mean(axis=0) - mean) / deviations).max() < 0.15
    assert draws.std(axis=0) == pytest.approx(deviations, rel=0.1)


def test_a_bounded_effect_has_the_probability_of_an_integral() -> None:
    """For losses below the noise, the posterior of a loss exp(z) equals its prior.

    No normal distribution has this shape.
    """

    def log_prior(draws: Array) -> Array:
        return np.asarray(-2 * np.log1p(draws**2 / 3).sum(axis=1))

    def log_likelihood(draws: Array) -> Array:
        return np.asarray(-0.5 * ((0.5 - np.exp(draws[:, 0])) / 0.4) ** 2)

    grid = np.linspace(-200, 20, 400_001)[:, None]
    density = np.exp(log_prior(grid) + log_likelihood(np.minimum(grid, 5)))
    expected = density[grid[:, 0] > 0].sum() / density.sum()
    start = np.random.default_rng(6).standard_t(3, (COUNT, 1)).clip(-200, 20)
    draws = sample_posterior(start, log_prior, log_likelihood, 2)
    assert float(np.mean(draws[:, 0] > 0)) == pytest.approx(expected, abs=0.02)


def test_no_information_keeps_the_prior_and_equal_arguments_give_equal_draws() -> None:
    start = np.random.default_rng(7).standard_normal((COUNT, 2))
    first, second = (sample_posterior(start, _log_normal, lambda draws: np.zeros(len(draws)), 3) for _ in range(2))
    assert (first == second).all()
    assert first.std(axis=0) == pytest.approx(np.ones(2), rel=0.05)
