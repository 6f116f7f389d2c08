"""What the workers of these tests share: channels, communicators, and lines of JSON that the world's first rank prints."""

import json
from collections.abc import Iterable
from typing import Any

from mpi4py import MPI

from hpcbench.codecs.base import Codec
from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Algorithm, Channel, Dimension, Kind, Phase

WORLD = MPI.COMM_WORLD


def channel(codec: str | Codec, algorithm: Algorithm = Algorithm.ENCODED) -> Channel:
    found = get_codec(codec) if isinstance(codec, str) else codec
    return Channel(Dimension.DP, Phase.BACKWARD, Kind.GRAD, found, algorithm)


def communicators() -> dict[str, MPI.Comm]:
    """This rank alone, a copy of the world, and splits of sizes that do not match."""
    return {
        "self": MPI.COMM_SELF.Dup(),
        "dup": WORLD.Dup(),
        "odd-even": WORLD.Split(WORLD.rank % 2, -WORLD.rank),
        "first-three": WORLD.Split(min(WORLD.rank // 3, 1), WORLD.rank),
    }


def tell(lines: Iterable[dict[str, Any]]) -> None:
    """Print every rank's lines (a collective call)."""
    for told in WORLD.gather(list(lines)) or []:
        for line in told:
            print(json.dumps(line), flush=True)
