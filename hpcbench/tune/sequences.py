"""Confidence sequences for a Gaussian mean of unknown variance: intervals that hold at all numbers of repeats.

An interval for a fixed number of repeats misses the mean too often if the user checks the interval after each repeat
and stops once it is narrow. A confidence sequence covers the mean at every look with the given probability.

The mixture of t statistics follows Lindon, Ham, Tingley and Bojinov ("Anytime-valid linear models and regression
adjusted causal inference", arXiv 2210.08589) with one coefficient of interest. With an estimate of variance ``factor *
sigma**2``, a residual variance of f degrees of freedom, and effects that are a priori normal with variance ``SPREAD *
sigma**2``, the ratio of the likelihoods of "effect" and "no effect" is

    r**-0.5 * ((1 + t**2 / f) / (1 + t**2 / (f * r)))**((f + 1) / 2),    r = 1 + SPREAD / factor.

Under "no effect" this ratio is a test martingale, so it exceeds 1 / level at some look with at most probability `level`
(Ville). The interval contains the values for which the ratio is smaller than 1 / level.
"""

import math

SPREAD = 30.0
"""Prior variance of effects relative to one run.

Intervals with 3 to 20 degrees of freedom depend little on this variance.
"""


def find_critical_t(level: float, factor: float, freedom: float) -> float:
    """Return the t statistic at which the likelihood ratio reaches ``1 / level``, or infinity.

    Parameters
    ----------
    level
        Error probability of the two-sided sequence.
    factor
        Variance of the estimate divided by the variance of one run.
    freedom
        Degrees of freedom of the residual variance.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}")
    if freedom <= 0:
        return math.inf
    log_r = math.log1p(SPREAD / factor)
    log_k = 2 / (freedom + 1) * (log_r / 2 - math.log(level))
    if log_k >= log_r:
        return math.inf
    k = math.exp(log_k)
    return math.sqrt(freedom * (k - 1) / (1 - k / math.exp(log_r)))
