"""How long a message is that leaves out what is zero. Pure, for the engine and for predictions."""

from collections.abc import Sequence

from hpcbench.parallel.fusion import ALIGNMENT, padded


def whole_length(kept: int, replicas: int) -> int:
    """Return the elements of a bucket's message that all replicas get whole, for so many values."""
    return padded(kept, replicas)


def piece_length(kept: Sequence[int]) -> int:
    """Return the elements of each piece's message; all are as long as that of the piece that keeps the most.

    Parameters
    ----------
    kept
        Values that are not set to zero, by piece.
    """
    return -(-max(kept) // ALIGNMENT) * ALIGNMENT


def mask_bytes(length: int) -> int:
    """Bytes of the mask of so many elements: a bit each, as a bitmap or as two places of 2 bits for each four."""
    return -(-length // 8)
