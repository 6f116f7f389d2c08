"""Lengths of messages without zeros, for the engine and for predictions."""

from collections.abc import Sequence

from hpcbench.parallel.fusion import ALIGNMENT, padded


def compute_whole_length(nonzeros: int, replicas: int) -> int:
    """Compute the number of elements of a message that each replica gets as a whole, with padding."""
    return padded(nonzeros, replicas)


def compute_piece_length(nonzeros: Sequence[int]) -> int:
    """Compute the common number of elements of the pieces' messages: that of the piece with the most nonzeros.

    Parameters
    ----------
    nonzeros
        Number of values that are not zero, by piece.
    """
    return -(-max(nonzeros) // ALIGNMENT) * ALIGNMENT


def count_mask_bytes(length: int) -> int:
    """Count the bytes of the mask of `length` elements: one bit each in both formats."""
    return -(-length // 8)
