"""Equivalence, which is shown and not concluded from a difference that was not found."""

from collections.abc import Sequence

from hpcbench.report.statistics.student import p_greater, p_less


def p_equivalent(values: Sequence[float], margin: float) -> float:
    """p-value of the hypothesis that the mean lies `margin` or more away from 0, on either side.

    Two one-sided tests (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987): the larger p-value
    counts. It is below 5 % exactly where the 90 % interval of the mean lies within the margin.

    Raises
    ------
    ValueError
        Fewer than two values.
    """
    return max(p_greater(values, -margin), p_less(values, margin))
