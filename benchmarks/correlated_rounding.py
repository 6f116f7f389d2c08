"""Compare the errors of sums with nearest, stochastic and correlated rounding.

    python benchmarks/correlated_rounding.py [--codecs NAME ...] [--ranks N ...] [--values N] [--tiny]

One process encodes the contributions of all ranks to the sum that rank 0 owns in a two-shot reduction, with the seeds
of the executor. The values of two ranks have a correlation of 0.36. An error is the RMS error of the sum, relative to
the error with rounding to nearest. The benchmark measures errors, not times. Requires hpcbench.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from provenance import head
from shared import make_table
from tiny import parse

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.correlated import make_shared_seed
from hpcbench.comm.steps import PeerSpan, PlanStep, two_shot_reduce
from hpcbench.comm.topology import Topology
from hpcbench.console import show_table
from hpcbench.contract.shards import ElementRange

CODECS = ("int4:32", "int8:256", "int4:32/256:nonuniform")
ROUNDINGS = ("", ":stochastic", ":correlated")


def find_message(rank: int, topology: Topology, values: int) -> tuple[PlanStep, PeerSpan]:
    """Return the message of a rank to rank 0 in a two-shot reduction of pieces with this number of values."""
    pieces = [ElementRange(k * values, (k + 1) * values) for k in range(topology.ranks)]
    (step,) = two_shot_reduce(topology, rank, pieces)
    return step, next(part for part in step.sends if part.peer == 0)


def measure(codec: str, ranks: int, values: int) -> list[float]:
    """Return the RMS errors of the sum of rank 0, one for each kind of rounding."""
    random, topology = np.random.default_rng(ranks), Topology.flat(ranks)
    common = random.standard_normal(values)
    errors = [np.zeros(values) for _ in ROUNDINGS]  # the contribution of rank 0 is not encoded
    for rank in range(1, ranks):
        x = (0.6 * common + 0.8 * random.standard_normal(values)).astype(np.float32)
        shared = make_shared_seed(1, *find_message(rank, topology, values), rank, topology)
        for error, rounding in zip(errors, ROUNDINGS, strict=True):
            seed = shared if rounding == ":correlated" else rank
            error += transmit(codec + rounding, x, seed) - x.astype(np.float64)
    return [float(np.sqrt(np.mean(error**2))) for error in errors]


def transmit(name: str, x: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float64]:
    """Encode and decode values."""
    codec = get_codec(name)
    wire, out = np.zeros(codec.wire_bytes(x.size, x.dtype), np.uint8), np.empty_like(x)
    codec.encode(x, wire, seed=seed)
    codec.decode(wire, out)
    return out.astype(np.float64)


def main() -> int:
    """Measure, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codecs", nargs="+", default=CODECS, help="names without rounding")
    parser.add_argument("--ranks", nargs="+", type=int, default=(2, 4, 8, 16, 64))
    parser.add_argument("--values", type=int, default=1 << 16, help="in the sum of a rank")
    options = parse(parser, values=1 << 13, ranks=(2, 8))
    print(*head(Path(__file__), ["numpy"]), sep="\n")
    table = make_table("codec", "ranks", "stochastic", "correlated", left=("codec",), spaced=True)
    for codec in options.codecs:
        for ranks in options.ranks:
            nearest, stochastic, correlated = measure(codec, ranks, options.values)
            table.add_row(codec, str(ranks), f"{stochastic / nearest:.2f}", f"{correlated / nearest:.2f}")
    show_table(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
