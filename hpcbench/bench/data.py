"""Values for codec measurements: generated data, samples from a real training run, and user files.

tensors.npz holds 8,192 values each of a gradient, an activation, a weight and an Adam moment. The file was made by
tests/codecs/make_tensors.py. Exact repetition would favor dictionary compressors. Therefore each repetition shuffles
the values within rows of 128, shuffles the rows, and multiplies all values by a random factor between 1/sqrt(2) and
sqrt(2). Neighboring values keep their ratios, and byte sequences do not repeat.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcbench.codecs.types import BFLOAT16, Array
from hpcbench.errors import UserError

Values = npt.NDArray[np.float32]

TYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": BFLOAT16}
"""Supported types, which lossy codecs accept."""

TENSORS = Path(__file__).with_name("tensors.npz")
"""Samples from a real training run."""
_ROW = 128
"""Number of values in a row of the original weight."""


def _normal(random: np.random.Generator, n: int) -> Values:
    return random.standard_normal(n, dtype=np.float32)


def _real(name: str) -> Callable[[np.random.Generator, int], Values]:
    def draw(random: np.random.Generator, n: int) -> Values:
        with np.load(TENSORS) as tensors:
            rows = tensors[name].reshape(-1, _ROW)
        times = -(-n // rows.size)
        order = random.permuted(np.tile(np.arange(len(rows)), (times, 1)), axis=1)  # [repetitions, rows]
        factors = np.exp2(random.uniform(-0.5, 0.5, (times, 1, 1))).astype(np.float32)
        shuffled: Values = random.permuted(rows[order] * factors, axis=2).ravel()[:n]
        return shuffled

    return draw


SETS: dict[str, Callable[[np.random.Generator, int], Values]] = {
    "gauss": lambda random, n: _normal(random, n) * np.float32(1e-3),
    "heavy-tail": lambda random, n: (random.standard_t(2, n) * 1e-4).astype(np.float32),
    "smooth": lambda random, n: np.cumsum(_normal(random, n), dtype=np.float64).astype(np.float32) * np.float32(1e-3),
    "sparse": lambda random, n: _normal(random, n) * (random.random(n, dtype=np.float32) < 0.1),
    **{name: _real(name) for name in ("gradient", "activation", "weight", "moment")},
}
"""Built-in data sets by name."""


def make_values(name: str, n: int, dtype: np.dtype[np.generic]) -> Array:
    """Return values of a built-in data set. Every call returns the same values.

    Parameters
    ----------
    name
        One of `SETS`.
    n
        Number of values.
    dtype
        Type to which values are rounded, one of `TYPES`.
    """
    return np.ascontiguousarray(SETS[name](np.random.default_rng(1), n), dtype=np.float32).astype(dtype, copy=False)


def load_values(source: str, n: int, dtype: np.dtype[np.generic]) -> Array:
    """Return values of a set, or the first values of a file.

    Parameters
    ----------
    source
        A name of `SETS`, or a file that hpcbench.bench.files can read: ``x.npy``, ``x.npz:KEY``, ...
    n
        Number of values. A shorter file is returned as a whole.
    dtype
        One of `TYPES`. Floating-point values of other types are rounded to this type.

    Raises
    ------
    UserError
        The data set or file does not exist, or does not contain suitable values.
    """
    if source in SETS:
        return make_values(source, n, dtype)
    from hpcbench.bench.files import KNOWN, open_values

    values = open_values(source, dtype)
    if values is None:
        raise UserError(f"--data {source}: no such data. Use one of {', '.join(SETS)}, or a file ({KNOWN})")
    if values.size == 0:
        raise UserError(f"--data {source}: contains no values. Name another file")
    with np.errstate(over="ignore"):  # Values beyond float16 become infinite, which the table shows.
        return np.array(values[:n], dtype=dtype)
