"""Correction for the number of hypotheses."""

from collections.abc import Sequence


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted so that of all true hypotheses any is rejected with at most the level's probability.

    Step-down after Holm (Scandinavian Journal of Statistics 6, 1979): valid however the tests depend on each other, as
    those do that share a baseline.

    Parameters
    ----------
    p
        p-values of one family.

    Returns
    -------
    list of float
        In the order of `p`.
    """
    found = [0.0] * len(p)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        found[i] = highest
    return found
