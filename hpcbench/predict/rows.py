"""Calls of an embedding's gradient that may be sent as touched rows only. Pure."""

from typing import NamedTuple

from hpcbench.parallel.sparse.switch import COUNT_BYTES, INDEX_BYTES
from hpcbench.predict.call import PredictedCall, RepeatedCall


class SentRows(NamedTuple):
    """Counts of one rank in a step, over all reductions that were sent as rows. They depend on the text."""

    left: int
    """Rows that the rank sent, counted once for each receiver."""
    reductions: int
    """Number of reductions that were sent as rows; the others sent the whole gradient."""
    gathered: bool
    """Whether every replica received all rows, not only the owners of their pieces."""


def list_reductions(
    reduction: PredictedCall, times: int, width: int, replicas: int, rows: SentRows | None
) -> list[RepeatedCall]:
    """List the reductions of a bucket in a step.

    Parameters
    ----------
    reduction
        Reduction of the whole bucket.
    times
        Number of reductions in a step.
    width
        Number of values in a row, if the bucket's gradient may be sent as rows; else 0.
    replicas
        Number of ranks that sum the gradient.
    rows
        Counted rows.

    Raises
    ------
    ValueError
        The gradient may be sent as rows, and `rows` is missing.
    """
    if not width or replicas == 1:
        return [(reduction, times)]
    if rows is None:
        raise ValueError("the bytes of an embedding's gradient in rows depend on the text: pass counted `rows`")
    exact, counts = ("EXACT", "BACKWARD", "GRAD"), 1 if rows.gathered else replicas
    return [
        (PredictedCall(exact, "all-gather", counts * replicas, COUNT_BYTES, reduction.group), times),
        (PredictedCall(exact, "send", rows.left, INDEX_BYTES, reduction.group), 1),
        (PredictedCall(reduction.channel, "send", rows.left * width, reduction.width, reduction.group), 1),
        (reduction, times - rows.reductions),
    ]
