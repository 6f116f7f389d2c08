"""Sparse codecs with their expected bytes, and difficult values."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import reference_sparse as reference
from codec_data import Array, bell, builds, float_sets, random_words, uniform

from hpcbench.codecs.base import Codec
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.sparse import Pick, RowSparse, Threshold, TopK
from hpcbench.codecs.types import BFLOAT16

BUILDS = builds()
TYPES = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]
CHUNK = 65536
FRACTIONS = (0.0005, 0.01, 0.09, 0.3, 0.98, 1.0)
THRESHOLDS = (1e-9, 1e-3, 3e-3, 0.3, 10.0)
WIDTHS = (1, 3, 16, 700, 70_000)


def case(name: str, build: Kernels | None = None) -> tuple[Codec, Callable[[Array], bytes]]:
    """Return a codec, and a function that computes its expected bytes."""
    family, _, parameter = name.partition(":")
    if family == "topk":
        top = TopK(float(parameter), build)
        return top, lambda x: reference.topk(x, top.param(x.size))
    if family == "threshold":
        return Threshold(float(parameter), build), lambda x: reference.threshold(x, float(parameter))
    if family == "rowsparse":
        return RowSparse(int(parameter), build), lambda x: reference.rowsparse(x, int(parameter))
    return Pick(build), reference.pick


NAMES = [
    *(f"topk:{f:g}" for f in FRACTIONS),
    *(f"threshold:{t:g}" for t in THRESHOLDS),
    *(f"rowsparse:{w}" for w in WIDTHS),
    "2:4",
]


def in_type(x: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(dtype)


def special_sets(n: int) -> dict[str, Array]:
    """Return values that are difficult to select by magnitude."""
    x = bell(n, 30).astype(np.float32)
    some = uniform(n, 31)
    bits = random_words(n, 32).astype(np.uint32)
    return {
        "nan": np.where(some < 0.3, np.float32(np.nan), x),
        "nan-and-infinite": np.where(some < 0.01, np.float32(-np.nan), np.where(some < 0.02, np.float32(-np.inf), x)),
        "subnormal": np.ldexp(x, -130).astype(np.float32),
        "any-bits": bits.view(np.float32),
        "clusters": np.where(np.arange(n) // 300 % 40 == 7, x, x * np.float32(1e-4)),
        "last": np.where(np.arange(n) >= n - n // 50, x, np.float32(0)),
        "rising": np.linspace(0, 1, n, dtype=np.float32),
    }


@functools.cache
def sets(n: int) -> dict[str, Array]:
    few = {label: x for label, x in float_sets(n).items() if n < 1000 or label in LONG}
    return few | special_sets(n)


LONG = ("bell", "sparse", "constant", "zeros", "negative-zeros", "gradient", "integers")


def decode_kept(codec: Codec, x: Array) -> Array:
    """Return the expected decoded values: the sent values, and zeros elsewhere."""
    marks = np.ones(x.size, dtype=bool)
    if isinstance(codec, TopK):
        marks = reference.largest(x, codec.param(x.size))
    elif isinstance(codec, Threshold):
        for at in range(0, x.size, CHUNK):
            part = x[at : at + CHUNK]
            above = reference.magnitudes(part) > codec.param(0)
            dense = 4 + len(reference.padded(part.tobytes()))
            sparse = 4 + len(reference.padded(part[above].tobytes())) + len(reference.index_of(above))
            marks[at : at + CHUNK] = above | (dense <= sparse)
    elif isinstance(codec, Pick):
        groups = reference.magnitudes(np.append(x, np.zeros(-x.size % 4, dtype=x.dtype))).reshape(-1, 4)
        rank = np.argsort(np.argsort(-groups, axis=1, kind="stable"), axis=1)
        chosen = np.where(rank.ravel() < 2, np.append(x, np.zeros(-x.size % 4, x.dtype)), x.dtype.type(0))[: x.size]
        return reference.quieted(chosen)
    return np.where(marks, x, x.dtype.type(0))


def form_of(wire: npt.NDArray[np.uint8], m: int, item: int) -> str:
    """Determine the index form of a single-chunk message from its length."""
    k = int(wire[:4].view(np.uint32)[0])
    index = wire.size - 4 - -(-k * item // 4) * 4
    if index == 0:
        return "all" if k else "none"
    sizes = {
        "bitmap": -(-m // 32) * 4,
        "places": -(-2 * k // 4) * 4,
        "grouped": -(-(k + -(-m // 256)) // 32) * 4 + -(-k // 4) * 4,
    }
    return next(form for form, size in sizes.items() if size == index)
