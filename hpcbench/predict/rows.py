"""What an embedding's gradient sends that may travel by the rows that were touched. Pure."""

from typing import NamedTuple

from hpcbench.parallel.sparse.switch import COUNT_BYTES, INDEX_BYTES
from hpcbench.predict.call import PredictedCall, RepeatedCall


class SentRows(NamedTuple):
    """Rows of one rank in a step, over all reductions that travelled by rows. Only the text knows them."""

    left: int
    """Rows that left the rank, once for each rank that got them."""
    reductions: int
    """Reductions that travelled by rows; the others sent the whole gradient."""
    gathered: bool
    """Whether every replica got all rows, not only the owners of their pieces."""


def list_reductions(
    whole: PredictedCall, times: int, width: int, replicas: int, rows: SentRows | None
) -> list[RepeatedCall]:
    """The reductions of a bucket in a step.

    Parameters
    ----------
    whole
        The reduction of the whole bucket.
    times
        Reductions of a step.
    width
        Values of a row, if the bucket's gradient may travel by rows; else 0.
    replicas
        Ranks that add up the gradient.
    rows
        The rows that were counted.

    Raises
    ------
    ValueError
        The gradient may travel by rows, and nobody has counted them.
    """
    if not width or replicas == 1:
        return [(whole, times)]
    if rows is None:
        raise ValueError("the bytes of an embedding's gradient by rows follow from counts of the text: give `rows`")
    exact, counts = ("EXACT", "BACKWARD", "GRAD"), 1 if rows.gathered else replicas
    return [
        (PredictedCall(exact, "all-gather", counts * replicas, COUNT_BYTES, whole.group), times),
        (PredictedCall(exact, "send", rows.left, INDEX_BYTES, whole.group), 1),
        (PredictedCall(whole.channel, "send", rows.left * width, whole.width, whole.group), 1),
        (whole, times - rows.reductions),
    ]
