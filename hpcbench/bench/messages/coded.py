"""What codecs make of a message: its size and its error."""

from dataclasses import dataclass

import numpy as np

from hpcbench.bench.fidelity import errors
from hpcbench.codecs.base import Codec
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import Array

DEFAULT = ("bf16", "int8:256", "zfp:8", "zfp:16", "mpc", "xpk", "topk:0.01")
"""Codecs that messages go through by default: those of the paper, and the plain ones that they are compared with."""


@dataclass(frozen=True)
class Coded:
    """A message that has gone through a codec, by whole messages."""

    ratio: float
    """Bytes before divided by bytes after."""
    relative_rmse: float
    """Root of the mean squared error, divided by that of the mean squared value."""
    relative_max: float
    """Largest error divided by the largest magnitude; 0.0 if nothing differs."""
    exact: bool
    """Whether every bit came back."""


def through(codec: Codec, x: Array) -> Coded:
    """Encode and decode values.

    Parameters
    ----------
    codec
        The codec.
    x
        Values, shape (n,), n at least 1.

    Raises
    ------
    TypeError
        The codec does not take values of this type.
    """
    wire = np.empty(codec.wire_bytes(x.size, x.dtype), np.uint8)
    used = codec.encode(x, wire)
    decoded = np.full_like(x, np.nan)
    codec.decode(wire[:used], decoded)
    difference = errors(x, decoded)
    finite = np.isfinite(x)
    largest = float(np.abs(x[finite]).max(initial=0)) if finite.any() else 0.0
    worst = difference.max_error / largest if largest else difference.max_error
    exact = bool(np.array_equal(x.view(np.uint8), decoded.view(np.uint8)))
    return Coded(x.nbytes / used if used else float("inf"), difference.relative_rmse, worst, exact)


def all_through(names: tuple[str, ...], x: Array) -> dict[str, Coded]:
    """The results of those codecs that take values of this type."""
    found = {}
    for name in names:
        codec = get_codec(name)
        try:
            codec.wire_bytes(x.size, x.dtype)
        except TypeError:
            continue  # the table has a dash
        with np.errstate(all="ignore"):
            found[name] = through(codec, x)
    return found
