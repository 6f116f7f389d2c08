"""Differences of weights: the mechanism of SDP4Bit (arXiv 2410.15526) for gathered weights.

Weights change little in a step, so a codec of few bits represents the change much better than the weights. Each rank
sends the encoded difference between its updated piece and the weights that all replicas hold. Every rank, including the
owner, adds the decoded difference to these weights. Therefore, replicas stay bitwise identical. The error of one
message is part of the next difference, so errors do not accumulate.

The weights of the model are the reference, so the mechanism needs no further state. Initial weights are identical on
all ranks, and checkpoints contain the weights and the master weights.
"""

from torch import Tensor

from hpcbench.parallel.packing import clear
from hpcbench.parallel.pieces import Piece


def subtract(source: Tensor, piece: Piece) -> Tensor:
    """Return the difference between updated master weights of a piece and the weights that all replicas hold.

    Master weights are rounded to the dtype of the model first. A small codec error then has no effect, because the
    sum of the reference and the difference is rounded to the same dtype.
    """
    held = piece.bucket.values[piece.owned]
    return source.to(held.dtype).to(source.dtype) - held.to(source.dtype)


def add(piece: Piece, differences: Tensor) -> None:
    """Add the decoded differences of all ranks, [n], to the weights of a bucket. Masked weights become zero."""
    weights = piece.bucket.values
    differences[piece.bucket.padding] = 0  # checkpoints do not contain padding, so it must not change
    weights.copy_(differences.add_(weights.to(differences.dtype)))
    if piece.packing:
        clear((weights,), piece.packing.kept)
