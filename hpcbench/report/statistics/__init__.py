"""What may be said of numbers that scatter: intervals, tests, corrections. Pure Python, one method a file."""

from hpcbench.report.statistics.deviations import robust_deviations
from hpcbench.report.statistics.equivalence import p_equivalent
from hpcbench.report.statistics.holm import holm
from hpcbench.report.statistics.intervals import (
    Interval,
    geometric_interval,
    mean_interval,
    paired_difference,
    paired_ratio,
    usable,
)
from hpcbench.report.statistics.median import median_interval
from hpcbench.report.statistics.power import pairs_needed
from hpcbench.report.statistics.student import (
    incomplete_beta,
    p_greater,
    p_less,
    p_two_sided,
    standard_deviation,
    student_t_cdf,
    student_t_quantile,
    t_statistic,
)

__all__ = [
    "Interval",
    "geometric_interval",
    "holm",
    "incomplete_beta",
    "mean_interval",
    "median_interval",
    "p_equivalent",
    "p_greater",
    "p_less",
    "p_two_sided",
    "paired_difference",
    "paired_ratio",
    "pairs_needed",
    "robust_deviations",
    "standard_deviation",
    "student_t_cdf",
    "student_t_quantile",
    "t_statistic",
    "usable",
]
