"""Communication calls for an embedding gradient that may be sent as touched rows only. Pure."""

from typing import NamedTuple

from hpcbench.parallel.sparse.switch import COUNT_BYTES, INDEX_BYTES
from hpcbench.predict.call import PredictedCall, RepeatedCall


class SentRows(NamedTuple):
    """Row counts of one rank in a step, over all reductions that were sent as rows. They depend on the text."""

    left: int
    """Rows sent by the rank, counted once per receiver."""
    reductions: int
    """Number of reductions that were sent as rows. Other reductions sent the whole gradient."""
    gathered: bool
    """Whether every replica received all rows, instead of only the rows in its own piece."""


def list_reductions(
    reduction: PredictedCall, times: int, width: int, replicas: int, rows: SentRows | None
) -> list[RepeatedCall]:
    """List a bucket's reductions in a step.

    Parameters
    ----------
    reduction
        Reduction of the full bucket.
    times
        Number of reductions per step.
    width
        Number of values per row if the bucket's gradient may be sent as rows; else 0.
    replicas
        Number of ranks over which the gradient is summed.
    rows
        Measured row counts.

    Raises
    ------
    ValueError
        The gradient may be sent as rows, and `rows` is missing.
    """
    if not width or replicas == 1:
        return [(reduction, times)]
    if rows is None:
        raise ValueError(
            "the bytes of an embedding gradient that is sent as rows depend on the text: pass the counted `rows`"
        )
    exact, counts = ("EXACT", "BACKWARD", "GRAD"), 1 if rows.gathered else replicas
    return [
        (PredictedCall(exact, "all-gather", counts * replicas, COUNT_BYTES, reduction.group), times),
        (PredictedCall(exact, "send", rows.left, INDEX_BYTES, reduction.group), 1),
        (PredictedCall(reduction.channel, "send", rows.left * width, reduction.width, reduction.group), 1),
        (reduction, times - rows.reductions),
    ]
