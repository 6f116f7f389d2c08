"""The rank of the matrices in a message, beside that of Gaussian matrices of the same shape.

The effective rank is that of Roy and Vetterli (EUSIPCO 2007): the exponential of the entropy of the singular values,
divided by their sum. It is k for k equal singular values, and so between 1 and the smaller dim.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from hpcbench.codecs.types import Array
from hpcbench.contract.kept import KeptMessage, Part

LEAST, MOST = 8, 1024
"""Smaller dim from which on a matrix has a rank worth a name; and the longest dim of which singular values are taken:
of longer ones rows or columns are picked at even distances."""
MATRICES = 16
"""Matrices of a message that are looked at: the largest ones."""
_DRAWS = 3
"""Gaussian matrices of a shape, whose mean is the control."""


@dataclass(frozen=True)
class Ranks:
    """Ranks of one matrix."""

    effective: float
    """0.0 for a matrix of zeros."""
    of_energy_90: int
    """Singular values that hold 90 % of the sum of their squares."""
    of_energy_99: int


@dataclass(frozen=True)
class Control:
    """Mean ranks of Gaussian matrices."""

    effective: float
    of_energy_90: float
    of_energy_99: float


@dataclass(frozen=True)
class Spectrum:
    """A matrix in a message."""

    name: str
    """Parameter that it is the gradient or the weight of; empty for activations."""
    shape: tuple[int, int]
    """Shape in the message."""
    taken: tuple[int, int]
    """Shape of what singular values were taken of."""
    ranks: Ranks
    control: Control

    @property
    def share(self) -> float:
        """Effective rank divided by the smaller dim."""
        return self.ranks.effective / min(self.taken)

    @property
    def beside_control(self) -> float:
        """Effective rank divided by that of Gaussian matrices of the same shape."""
        return self.ranks.effective / self.control.effective


def ranks(matrix: Array) -> Ranks:
    """Ranks of a matrix of finite values, shape (m, n)."""
    singular = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    return Ranks(effective_rank(singular), energy_rank(singular, 0.9), energy_rank(singular, 0.99))


def effective_rank(singular: Array) -> float:
    """The effective rank of a matrix with these singular values; 0.0 if all are zero."""
    total = float(singular.sum())
    if not total:
        return 0.0
    shares = singular[singular > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def energy_rank(singular: Array, share: float) -> int:
    """Number of the largest singular values whose squares make up `share` of the sum of all squares."""
    energy = np.cumsum(np.square(singular))
    if not energy.size or not energy[-1]:
        return 0
    # what rounding adds to the sum is no singular value more
    return int(np.searchsorted(energy, share * energy[-1] * (1 - 1e-12))) + 1


@cache
def control(rows: int, columns: int) -> Control:
    """Ranks of Gaussian matrices of a shape, the same at each call."""
    random = np.random.default_rng((rows, columns))
    drawn = [ranks(random.standard_normal((rows, columns))) for _ in range(_DRAWS)]
    return Control(
        *(
            float(np.mean([getattr(one, name) for one in drawn]))
            for name in ("effective", "of_energy_90", "of_energy_99")
        )
    )


def matrices(message: KeptMessage, values: Array) -> Iterator[tuple[str, Array]]:
    """The matrices that the file holds, largest first, with their names.

    A tensor of more than two dims is a matrix of all its dims but the last, by the last: activations [b, s, h] are
    [b s, h]. Rows beyond what the file holds are left out; vectors are no matrices.

    Parameters
    ----------
    message
        The message.
    values
        Its values that the file holds, shape (n,).
    """
    found = [(part.name, matrix) for part in message.parts if (matrix := _matrix(part, values)) is not None]
    found.sort(key=lambda one: -one[1].size)
    yield from found[:MATRICES]


def _matrix(part: Part, values: Array) -> Array | None:
    if len(part.shape) < 2:
        return None
    columns = part.shape[-1]
    rows = min(math.prod(part.shape[:-1]), max(values.size - part.begin, 0) // columns if columns else 0)
    if min(rows, columns) < LEAST:
        return None
    matrix: Array = values[part.begin : part.begin + rows * columns].reshape(rows, columns)
    return matrix


def spectra(message: KeptMessage, values: Array) -> Iterator[Spectrum]:
    """The ranks of the message's matrices; those of zeros and those with NaN or infinity have none."""
    for name, matrix in matrices(message, values):
        taken = _thinned(_thinned(matrix).T).T.astype(np.float64)
        if np.isfinite(taken).all() and taken.any():
            shape = matrix.shape[0], matrix.shape[1]
            yield Spectrum(name, shape, (taken.shape[0], taken.shape[1]), ranks(taken), control(*sorted(taken.shape)))


def _thinned(matrix: Array) -> Array:
    """At most `MOST` rows, at even distances."""
    if len(matrix) <= MOST:
        return matrix
    picked: Array = matrix[np.linspace(0, len(matrix) - 1, MOST).round().astype(np.int64)]
    return picked
