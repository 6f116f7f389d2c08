"""Topologies, inputs and expected results for the plan tests."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from simulate import Outcome, simulate

from hpcbench.codecs.base import Codec
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.traffic import Algorithm

Array = npt.NDArray[Any]

FLAT = [Topology.flat(ranks) for ranks in range(1, 10)]
REGULAR = [Topology.regular(2, 2), Topology.regular(4, 2), Topology.regular(2, 4), Topology.regular(8, 8)]
IRREGULAR = [
    Topology((0, 0, 1)),
    Topology((0, 1, 1, 1)),
    Topology((0, 1, 0, 2, 1, 0)),  # scattered over nodes of different sizes
]

OWNED = (Algorithm.TWO_SHOT, Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_ENCODED, Algorithm.RING)
REDUCTIONS = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER)
PAIRS = [
    *((operation, algorithm) for operation in REDUCTIONS for algorithm in OWNED),
    (Operation.ALL_REDUCE, Algorithm.DOUBLING),
    (Operation.BROADCAST, Algorithm.TWO_SHOT),
    (Operation.REDUCE, Algorithm.TWO_SHOT),
]
"""All supported pairs of operation and algorithm. Rooted operations have the same steps with every algorithm."""

POISON = 7.7e33


def inputs(plan: Plan, dtype: str, *, integers: bool = True) -> list[Array]:
    """Return the input of each rank: a contribution, or the rank's own piece surrounded by poison."""
    values = [contribution(rank, plan.n, dtype, integers=integers) for rank in range(plan.topology.ranks)]
    if plan.operation is Operation.ALL_GATHER:
        return [only(x, [piece]) for x, piece in zip(values, cut_evenly(plan.n, len(values)), strict=True)]
    if plan.operation is Operation.BROADCAST:
        return [x if rank == plan.root else only(x, []) for rank, x in enumerate(values)]
    return values


def contribution(rank: int, n: int, dtype: str, *, integers: bool = False) -> Array:
    """Return values of mixed magnitude and sign that differ between ranks."""
    return _contribution(rank, n, dtype, integers).copy()


@lru_cache(maxsize=256)
def _contribution(rank: int, n: int, dtype: str, integers: bool) -> Array:
    random = np.random.default_rng([rank, n])
    if integers:
        return random.integers(-1000, 1000, n).astype(dtype)
    return (random.standard_t(2, n) * 1e-3).astype(dtype)


def only(values: Array, pieces: Sequence[slice]) -> Array:
    """Return a copy of a vector in which all values outside the pieces are poison."""
    masked = np.full_like(values, POISON)
    for piece in pieces:
        masked[piece] = values[piece]
    return masked


def carried_out(plan: Plan, values: Sequence[Array], *, order: int | None = None) -> Outcome:
    return simulate(plan, values, order=None if order is None else np.random.default_rng(order))


def expected(plan: Plan, values: Sequence[Array]) -> Array:
    """Return the complete result without a codec, in float64."""
    if plan.operation is Operation.BROADCAST:
        return values[plan.root].astype(np.float64)
    if plan.operation is Operation.ALL_GATHER:
        pieces = cut_evenly(plan.n, len(values))
        return np.concatenate([x[piece] for x, piece in zip(values, pieces, strict=True)]).astype(np.float64)
    return np.sum([x.astype(np.float64) for x in values], axis=0)


def wholes(plan: Plan, outcome: Outcome) -> list[Array]:
    """Return the complete results of all ranks.

    The pieces of a reduce-scatter are concatenated. For a reduction to a root, only the root's result is returned.
    """
    if plan.operation is Operation.REDUCE:
        return [outcome.values[plan.root]]
    if plan.operation is not Operation.REDUCE_SCATTER:
        return outcome.values
    pieces = cut_evenly(plan.n, len(outcome.values))
    return [np.concatenate([x[piece] for x, piece in zip(outcome.values, pieces, strict=True)])]


def lay_out(
    operation: Operation,
    n: int,
    topology: Topology,
    codec: Codec,
    algorithm: Algorithm,
    slices: int | None = None,
    root: int = 0,
) -> Plan:
    """Create a plan for float32."""
    return plan(Request(operation, n, np.dtype("f4"), topology, codec, algorithm=algorithm, slices=slices, root=root))


def check(planned: Plan, dtype: str = "float32", order: int | None = None, *, integers: bool = True) -> None:
    """Execute a plan, and check that the results of all ranks are bitwise identical.

    Sums of small integers do not depend on their order, so they must be exact. For other values, the error must be
    within the codec's precision.
    """
    assert sum(piece.size for pieces in planned.slices for piece in pieces) == planned.n
    values = inputs(planned, dtype, integers=integers)
    outcome = carried_out(planned, values, order=order)
    want, results = expected(planned, values), wholes(planned, outcome)
    for rank, result in enumerate(results):
        assert result.tobytes() == results[0].tobytes(), f"ranks 0 and {rank} differ: {planned}"
    if planned.codec.lossless:
        tolerance = 0.0 if integers else 1e-6 * float(np.abs(want).max(initial=0))
        np.testing.assert_allclose(results[0], want, rtol=0, atol=tolerance)
    assert len(outcome.sent) == len({(s.source, s.target, s.stage, s.span) for s in outcome.sent}), "sent twice"
