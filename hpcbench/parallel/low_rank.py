"""Low-rank sums of gradients: PowerSGD (arXiv 1905.13727, algorithms 1 and 2).

The gradient M of each matrix [n, m], plus the error E of the previous step, is approximated by one step of a power
iteration. Two small all-reduces replace the sum of the matrix:

1. P = M Q [n, r], summed over the replicas and then orthonormalized,
2. Q = M' P [m, r], summed over the replicas.

Every replica decodes the same sum P Q'. The error of a replica, E = M - P Q' / replicas, is added to its gradient in
the next step. The next power iteration starts with Q. Vectors, and matrices that would not become at least two times
smaller, are summed together with P. These messages are also encoded by the channel's codec, and E includes the codec's
errors in P and Q.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.contract.scheme_fit import matrix_shape
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.buffers import to_buffer, to_tensor
from hpcbench.parallel.pieces import Piece, Reduction


@dataclass(frozen=True)
class _Matrix:
    """A gradient matrix [n, m] in the flat values of a bucket, its error, and the first iteration's factor Q [m, r]."""

    name: str
    values: Tensor
    error: Tensor
    start: Tensor


class LowRank:
    """Reducer that sums low-rank approximations of gradients.

    Parameters
    ----------
    channel
        Channel of gradients, which sets the rank of the approximation in each step.

    Attributes
    ----------
    factors : dict of Tensor
        Factor Q of the previous step [m, r], keyed by parameter name. The factors are identical on all replicas.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.factors: dict[str, Tensor] = {}

    def forget(self) -> None:
        """Discard the factors, so that the next approximations begin with random factors."""
        self.factors.clear()

    def save(self) -> dict[str, Tensor]:
        """Return the factors for a checkpoint."""
        return {name: factor.to("cpu", copy=True) for name, factor in self.factors.items()}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Load saved factors. If `saved` is empty, the next approximations begin with random factors."""
        self.factors = {name: factor.clone() for name, factor in saved.items()}

    def start(self, piece: Piece, gradients: Tensor, divisor: float, group: Group) -> Reduction | None:
        """Start to sum a gradient, divided by `divisor` (a collective call).

        The sum overwrites the values of `gradients`, or of their copy in the wire dtype. Return None if no matrix of
        the bucket would become smaller.
        """
        bucket, rank = piece.bucket, self._channel.low_rank
        assert piece.feedback is not None
        values, errors = to_tensor(to_buffer(gradients)), to_tensor(piece.feedback.sent)
        if not any(matrix_shape(slot.parameter.shape, rank) for slot in bucket.slots):
            return None
        values /= divisor
        matrices, others = self._cut(bucket, values, errors)
        products = [matrix.values @ matrix.start for matrix in matrices]
        message = _join([*products, *others], values)
        buffer = to_buffer(message)
        work = group.all_reduce(buffer, channel=self._channel)
        result = values[piece.owned]
        complete = partial(self._complete, matrices, others, message, group)
        return Reduction(result, work, buffer, complete)

    def _cut(self, bucket: Bucket, values: Tensor, errors: Tensor) -> tuple[list[_Matrix], list[Tensor]]:
        """Return the matrices to approximate, with their errors added, and the other values of a bucket."""
        matrices, others = [], []
        for slot in bucket.slots:
            shape = matrix_shape(slot.parameter.shape, self._channel.low_rank)
            if shape is None:
                others.append(values[slot.span])
                continue
            matrix, error = values[slot.span].view(shape), errors[slot.span].view(shape)
            matrix += error
            matrices.append(_Matrix(slot.shard.name, matrix, error, self._first_factor(slot.shard.name, matrix)))
        return matrices, others

    def _first_factor(self, name: str, matrix: Tensor) -> Tensor:
        """Return orthonormal columns that span the factor of the previous step, or random columns in the first step.

        The seed is the name of the parameter, so all replicas draw the same columns.
        """
        shape = matrix.shape[1], self._channel.low_rank
        factor = self.factors.get(name)
        if factor is None or factor.shape != shape:
            seed = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            factor = torch.randn(shape, generator=seed)
        return orthonormalize(factor.to(matrix.device, matrix.dtype))

    def _complete(self, matrices: list[_Matrix], others: list[Tensor], message: Tensor, group: Group) -> None:
        """Sum the second factors after the first factors have arrived, and write the sums and the errors."""
        rank = self._channel.low_rank
        sums = _split(message, [*((len(matrix.values), rank) for matrix in matrices), *(o.shape for o in others)])
        first = [orthonormalize(factor) for factor in sums[: len(matrices)]]
        message = _join([matrix.values.T @ factor for matrix, factor in zip(matrices, first, strict=True)], message)
        group.all_reduce(to_buffer(message), channel=self._channel).wait()
        second = _split(message, [(matrix.values.shape[1], rank) for matrix in matrices])
        for matrix, left, right in zip(matrices, first, second, strict=True):
            total = left @ right.T
            matrix.error.copy_(matrix.values - total / group.size)
            matrix.values.copy_(total)
            self.factors[matrix.name] = right.clone()
        for values, total in zip(others, sums[len(matrices) :], strict=True):
            values.copy_(total)


def orthonormalize(columns: Tensor) -> Tensor:
    """Return orthonormal columns that span the same space, [n, r].

    Columns of zeros become arbitrary orthonormal columns, so a factor of zeros cannot persist. If a value is not
    finite, all values become NaN, so the gradient norm detects the overflow.
    """
    if not bool(torch.isfinite(columns).all()):
        return torch.full_like(columns, torch.nan)
    orthonormal: Tensor = torch.linalg.qr(columns)[0]
    return orthonormal


def _join(parts: Iterable[Tensor], like: Tensor) -> Tensor:
    """Copy tensors into one flat message."""
    flat = [part.reshape(-1) for part in parts]
    return torch.cat(flat).to(like.dtype)


def _split(message: Tensor, shapes: Iterable[Any]) -> list[Tensor]:
    """Return views of a flat message with these shapes."""
    views, start = [], 0
    for shape in shapes:
        stop = start + torch.Size(shape).numel()
        views.append(message[start:stop].view(shape))
        start = stop
    return views
