"""Test cases of collectives on real ranks, and their expected results."""

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from plan_cases import Array, contribution, expected, inputs
from simulate import homomorphic_sum, simulate

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.links import Link, Links, Speed
from hpcbench.comm.plan import ROOTED, Operation, Plan
from hpcbench.comm.planner import Request, plan, refusal
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.traffic import Algorithm

LOSSY = ("zfp:8", "zfp:16", "int8:256", "int4:32", "sign:1024", "fp16")
STOCHASTIC = "int8:256:stochastic"
LOSSLESS = ("none", "mpc:1", "xpk")
SMALL, LARGE = (0, 1, 7), (1001, 70_000)

_FREE_CALLS = Speed(encode_bytes_per_s=1e9, decode_bytes_per_s=1e9, call_s=0.0, ratio=0.5)
SLICING = Links(
    Link(1e-9, 1e9), Link(1e-9, 1e9), tuple((codec, _FREE_CALLS) for codec in (*LOSSLESS, *LOSSY, STOCHASTIC))
)
"""Links without latency but with low bandwidth, so that plans of large vectors between nodes have several slices."""
SLICES = 6
"""Number of slices of large vectors, which exceeds the number of slices in flight."""

ALGORITHMS = tuple(a for a in Algorithm if a not in (Algorithm.NATIVE, Algorithm.HOMOMORPHIC))


class Case(NamedTuple):
    operation: Operation
    algorithm: Algorithm
    codec: str
    dtype: str
    n: int
    root: int = 0

    @property
    def slices(self) -> int | None:
        """Number of slices: several for a large vector, or None with ``AUTO``, where the planner chooses."""
        return SLICES if self.n >= max(LARGE) and self.algorithm is not Algorithm.AUTO else None


class Told(NamedTuple):
    """A rank's report for one case."""

    result: str
    """Digest of the rank's result."""
    message: int
    wire: int
    network: int


def topologies(ranks: int) -> list[Topology]:
    """List the topologies to test with this number of ranks."""
    every = [Topology.flat(ranks), Topology.regular(ranks, 1)]
    if ranks == 8:
        return [Topology.regular(4, 2), Topology((0, 1, 1, 0, 0, 1, 0, 1))]
    if ranks == 5:
        return [Topology.regular(5, 1), Topology((0, 0, 1, 1, 0))]
    return every if ranks > 1 else every[:1]


def cases(topology: Topology, *, few: bool = False) -> Iterator[Case]:
    """Yield the valid cases of a topology. With `few`, only one size and two codecs are used."""
    for operation in (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER):
        for algorithm in ALGORITHMS:
            if refusal(operation, algorithm, topology):
                continue
            for codec, dtype, n in _data(few):
                yield Case(operation, algorithm, codec, dtype, n)
        for dtype in ("float32", "float64"):
            for n in SMALL + LARGE:
                yield Case(operation, Algorithm.NATIVE, "none", dtype, n)
    for n in SMALL + LARGE:
        yield Case(Operation.ALL_REDUCE, Algorithm.HOMOMORPHIC, "int8:64", "float32", n)
    for operation in ROOTED:
        for root in range(topology.ranks):
            yield Case(operation, Algorithm.NATIVE, "none", "float32", 1001, root)
            for codec in ("none", "zfp:8", "xpk"):
                for n in (1, 1001, 70_000) if root < 2 else (1001,):
                    yield Case(operation, Algorithm.ENCODED, codec, "float32", n, root)


def _data(few: bool) -> Iterator[tuple[str, str, int]]:
    if few:
        yield from (("none", "float64", 1001), ("zfp:8", "float32", 1001))
        return
    yield from ((codec, "float32", 1001) for codec in LOSSLESS + LOSSY)
    yield from ((codec, "float64", 1001) for codec in LOSSLESS)
    yield from (("none", "float64", 70_000), ("zfp:8", "float32", 70_000), ("int4:32", "float32", 70_000))
    yield ("xpk", "float32", 70_000)
    for n in SMALL:
        yield from ((codec, "float32", n) for codec in ("none", "zfp:8", "xpk"))


def planned(case: Case, topology: Topology) -> Plan:
    codec, dtype = get_codec(case.codec), np.dtype(case.dtype)
    how = {"algorithm": case.algorithm, "slices": case.slices, "root": case.root}
    return plan(Request(case.operation, case.n, dtype, topology, codec, **how), SLICING)


def digest(values: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()


@cache
def foretold(case: Case, topology: Topology) -> list[Told] | None:
    """Return every rank's expected report, bit for bit, or None if the MPI library determines the summation order."""
    laid = planned(case, topology)
    if laid.algorithm is Algorithm.NATIVE or topology.ranks == 1:
        return None
    values = inputs(laid, case.dtype, integers=False)
    if laid.algorithm is Algorithm.HOMOMORPHIC:
        result = digest(homomorphic_sum(values, 64))
        share = 2 * (topology.ranks - 1) / topology.ranks
        blocks = -(-case.n // 64)
        return [Told(result, round(share * 4 * case.n), round(share * blocks * (64 * 2 + 4)), 0)] * topology.ranks
    outcome = simulate(laid, values)
    expected = []
    for rank, outcome_of_rank in enumerate(outcome.values):
        sent = [s for s in outcome.sent if s.source == rank]
        result = (
            outcome_of_rank[cut_evenly(case.n, topology.ranks)[rank]]
            if case.operation is Operation.REDUCE_SCATTER
            else outcome_of_rank
        )
        network = sum(s.wire for s in sent if not topology.near(rank, s.target))
        expected.append(Told(digest(result), sum(s.message for s in sent), sum(s.wire for s in sent), network))
    return expected


def exact(case: Case, ranks: int) -> Array:
    """Return the complete result without a codec, in float64."""
    laid = planned(case._replace(algorithm=Algorithm.NATIVE), Topology.flat(ranks))
    return expected(laid, inputs(laid, case.dtype, integers=False))


def parts_of(ranks: int, seed: int) -> Any:
    """Return all-to-all counts from rank i to rank j. The counts are uneven, and some are 0."""
    random = np.random.default_rng([ranks, seed])
    counts = random.integers(0, 700, (ranks, ranks))
    counts[random.random((ranks, ranks)) < 0.25] = 0
    return counts


def exchanged(rank: int, counts: Any, dtype: str) -> list[Array]:
    """Return the values that a rank sends to each rank."""
    return np.split(contribution(rank, int(counts[rank].sum()), dtype), np.cumsum(counts[rank])[:-1])
