"""Samples of a posterior distribution: sequential Monte Carlo with tempering and Metropolis moves.

If draws came from the prior alone, they would become useless after a few rounds, because almost all weight would fall
on one or two of them. The likelihood is therefore introduced in steps. After each step the draws are resampled by their
weights and moved by a random walk that keeps the tempered posterior (Del Moral, Doucet and Jasra, "Sequential Monte
Carlo samplers", J. R. Statist. Soc. B 68, 2006). The number of steps follows from the effective number of draws.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Density = Callable[[Array], Array]
"""Function that returns the logarithm of a density for each row of an array of draws."""

MOVES = 6
"""Random-walk proposals per step."""


def sample_posterior(draws: Array, log_prior: Density, log_likelihood: Density, seed: int) -> Array:
    """Return draws of the posterior.

    Parameters
    ----------
    draws
        Draws of the prior, one row each.
    log_prior, log_likelihood
        Logarithms of both densities, up to a constant.
    seed
        Seed of the random moves. The same arguments give the same draws.
    """
    random = np.random.default_rng(seed)
    count, size = draws.shape
    likelihood, temperature = log_likelihood(draws), 0.0
    scale = 2.0 / math.sqrt(size)
    while temperature < 1:
        step = _find_step(likelihood, 1 - temperature)
        temperature = 1.0 if step >= 1 - temperature else temperature + step
        weights = np.exp(step * (likelihood - np.max(likelihood)))
        places = (random.random() + np.arange(count)) / count
        chosen = np.minimum(np.searchsorted(np.cumsum(weights / weights.sum()), places), count - 1)
        draws, likelihood = draws[chosen], likelihood[chosen]
        prior = log_prior(draws)
        root = np.linalg.cholesky(np.atleast_2d(np.cov(draws.T)) + 1e-12 * np.eye(size))
        for _ in range(MOVES):
            proposed = draws + scale * random.standard_normal((count, size)) @ root.T
            new_prior, new_likelihood = log_prior(proposed), log_likelihood(proposed)
            change = new_prior - prior + temperature * (new_likelihood - likelihood)
            accepted = -random.standard_exponential(count) < change
            draws = np.where(accepted[:, None], proposed, draws)
            prior, likelihood = np.where(accepted, new_prior, prior), np.where(accepted, new_likelihood, likelihood)
            scale *= math.exp(float(np.mean(accepted)) - 0.25)
    return draws


def _find_step(likelihood: Array, most: float) -> float:
    """Return the largest increase of the temperature that keeps half of the draws effective."""
    low, high = 0.0, most
    for _ in range(20):
        middle = (low + high) / 2 if low or _is_uneven(likelihood, high) else high
        if middle == high:
            return high
        low, high = (low, middle) if _is_uneven(likelihood, middle) else (middle, high)
    return max(low, 1e-6)


def _is_uneven(likelihood: Array, step: float) -> bool:
    weights = np.exp(step * (likelihood - np.max(likelihood)))
    return bool(weights.sum() ** 2 < 0.5 * len(weights) * (weights**2).sum())
