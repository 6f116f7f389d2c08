"""Correction for the number of hypotheses."""

from collections.abc import Sequence


def holm(p: Sequence[Sequence[float]]) -> list[list[float]]:
    """p-values adjusted so that any true hypothesis at all is rejected with at most the level's probability.

    Holm's step-down (Scandinavian Journal of Statistics 6, 1979), valid however the tests depend on each other, as
    those do that share a baseline. Of hypotheses that exclude each other at most one is true: a group of such counts as
    one, until all of it is rejected (Shaffer, Journal of the American Statistical Association 81, 1986). Whoever first
    rejects a true one has rejected only false ones before, so that each group with a true one still counts.

    Parameters
    ----------
    p
        p-values of each group. Groups of one are Holm's own method.

    Returns
    -------
    list of list of float
        In the order of `p`.
    """
    found = [[0.0] * len(group) for group in p]
    left = [len(group) for group in p]
    highest = 0.0
    for value, i, j in sorted((value, i, j) for i, group in enumerate(p) for j, value in enumerate(group)):
        highest = max(highest, min(1.0, sum(map(bool, left)) * value))
        found[i][j] = highest
        left[i] -= 1
    return found
