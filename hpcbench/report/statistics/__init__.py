"""What may be said of numbers that scatter: intervals, tests, corrections. Pure Python, one method a file."""

from hpcbench.report.statistics.deviations import robust_deviations
from hpcbench.report.statistics.holm import holm
from hpcbench.report.statistics.interval import Interval, usable
from hpcbench.report.statistics.intervals import geometric_interval, mean_interval, paired_difference, paired_ratio
from hpcbench.report.statistics.mean import Mean, mean_of, welch
from hpcbench.report.statistics.median import median_interval
from hpcbench.report.statistics.power import pairs_needed
from hpcbench.report.statistics.student import incomplete_beta, student_t_cdf, student_t_quantile

__all__ = [
    "Interval",
    "Mean",
    "geometric_interval",
    "holm",
    "incomplete_beta",
    "mean_interval",
    "mean_of",
    "median_interval",
    "paired_difference",
    "paired_ratio",
    "pairs_needed",
    "robust_deviations",
    "student_t_cdf",
    "student_t_quantile",
    "usable",
    "welch",
]
