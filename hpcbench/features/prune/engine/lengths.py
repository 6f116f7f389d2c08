"""Lengths of messages without zeros, used by the engine and by predictions."""

from collections.abc import Sequence

from hpcbench.parallel.fusion import ALIGNMENT, padded


def compute_whole_length(nonzeros: int, replicas: int) -> int:
    """Compute the padded length, in elements, of a message that every replica receives in full."""
    return padded(nonzeros, replicas)


def compute_piece_length(nonzeros: Sequence[int]) -> int:
    """Compute the message length of a piece in elements. All pieces have the same length.

    The piece with the most nonzeros determines the length.

    Parameters
    ----------
    nonzeros
        Number of nonzero values of each piece.
    """
    return -(-max(nonzeros) // ALIGNMENT) * ALIGNMENT


def count_mask_bytes(length: int) -> int:
    """Count the bytes of a mask of `length` elements. Both formats use one bit per element."""
    return -(-length // 8)
