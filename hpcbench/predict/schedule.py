"""Bubble of a pipeline schedule in closed form."""


def compute_bubble(*, stages: int, microbatches: int, chunks: int = 1) -> float:
    """Return the idle fraction of a step if all parts take the same time and messages take no time.

    The fraction is ``(p - 1) / (v m + p - 1)``. The ``(p - 1) / (v m)`` of arXiv 2104.04473 (section 2.2) is relative
    to the time without the bubble. For GPipe and 1F1B, v = 1.
    """
    return (stages - 1) / (chunks * microbatches + stages - 1)
