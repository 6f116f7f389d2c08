"""Statistics of numbers that scatter: intervals, tests, corrections. Pure Python."""

from hpcbench.report.statistics.estimates import (
    Interval,
    Mean,
    geometric_interval,
    geometric_mean_of_known,
    mean_interval,
    mean_of,
    mean_of_known,
    median_interval,
    paired_difference,
    paired_ratio,
    usable,
    welch,
)
from hpcbench.report.statistics.tests import holm, incomplete_beta, pairs_needed, student_t_cdf, student_t_quantile

__all__ = [
    "Interval",
    "Mean",
    "geometric_interval",
    "geometric_mean_of_known",
    "holm",
    "incomplete_beta",
    "mean_interval",
    "mean_of",
    "mean_of_known",
    "median_interval",
    "paired_difference",
    "paired_ratio",
    "pairs_needed",
    "student_t_cdf",
    "student_t_quantile",
    "usable",
    "welch",
]
