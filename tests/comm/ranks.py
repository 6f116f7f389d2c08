"""Worker utilities: channels, communicators, and JSON lines that rank 0 prints for all ranks."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.base import Codec
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import Array, Bytes
from hpcbench.comm.channel import Channel
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase

WORLD = MPI.COMM_WORLD


def channel(codec: str | Codec, algorithm: Algorithm = Algorithm.ENCODED, *, slices: int | None = None) -> Channel:
    resolved = get_codec(codec) if isinstance(codec, str) else codec
    return Channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, resolved, algorithm, slices=slices)


def communicators() -> dict[str, MPI.Comm]:
    """Return communicators by name: this rank alone, a copy of the world, and splits of unequal sizes."""
    return {
        "self": MPI.COMM_SELF.Dup(),
        "dup": WORLD.Dup(),
        "odd-even": WORLD.Split(WORLD.rank % 2, -WORLD.rank),
        "first-three": WORLD.Split(min(WORLD.rank // 3, 1), WORLD.rank),
    }


def tell(lines: Iterable[dict[str, Any]]) -> None:
    """Print the lines of every rank. All ranks must make this call."""
    for lines_of_rank in WORLD.gather(list(lines)) or []:
        for line in lines_of_rank:
            print(json.dumps(line), flush=True)


class Hooked(Codec):
    """A codec that calls a function before each encode or decode."""

    def __init__(self, name: str, before: Callable[[], None]) -> None:
        self._codec, self._before = get_codec(name), before
        self.name, self.lossless, self.fixed_size = name, self._codec.lossless, self._codec.fixed_size

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        return self._codec.wire_bytes(n, dtype)

    def encode(self, x: Array, out: Bytes, *, residual: Array | None = None, seed: int = 0) -> int:
        self._before()
        return self._codec.encode(x, out, residual=residual, seed=seed)

    def decode(self, wire: Bytes, out: Array, *, dtype: np.dtype[Any] | None = None, accumulate: bool = False) -> None:
        self._before()
        self._codec.decode(wire, out, dtype=dtype, accumulate=accumulate)

    def error_bound(self, x: Array) -> float | None:
        return self._codec.error_bound(x)
