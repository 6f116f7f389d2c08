"""Selection of the plan for a collective: the fastest supported plan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm.links import DEFAULT, Links
from hpcbench.comm.plan import ROOTED, UNIT, Operation, Plan, lay_out
from hpcbench.comm.plan_time import measured_seconds, model_seconds, seconds
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm

_MEASURED, _EXPECTED = 0.95, 0.8
"""Largest ratios of plan time to library time (measured, modeled) at which a plan with a codec is selected.

Measured medians vary by a few percent from day to day. Predictions of the model are less accurate.
"""


@dataclass(frozen=True)
class Request:
    """A collective to be planned."""

    operation: Operation
    n: int
    """Number of elements."""
    dtype: np.dtype[np.generic]
    topology: Topology
    codec: Codec
    """Codec for encoded messages."""
    algorithm: Algorithm = Algorithm.ENCODED
    """The algorithm. For `AUTO` and `ENCODED`, the planner chooses from the speeds of links and codecs."""
    slices: int | None = None
    """Number of slices. If None, the planner chooses the number with the shortest estimated time."""
    root: int = 0
    """Root of a broadcast or of a reduction to a root."""
    feedback: bool = False
    """Whether residuals are used. If so, each contribution and each sum must be encoded exactly once."""
    between_nodes: bool = False
    """Whether only traffic between nodes is encoded."""

    def laid_out(self, algorithm: Algorithm, slices: int) -> Plan:
        """Lay out the plan of an algorithm with this number of slices."""
        return lay_out(self.operation, self.n, self.dtype, self.topology, self.codec, algorithm, slices, root=self.root)


@lru_cache(maxsize=4096)
def plan(request: Request, links: Links = DEFAULT) -> Plan:
    """Select the plan of a collective and lay it out.

    Parameters
    ----------
    request
        The collective and its constraints.
    links
        Measured speeds of the machine's links and codecs.

    Raises
    ------
    ValueError
        The algorithm does not support the operation on this topology. The message gives the reason.
    """
    operation, algorithm, topology = request.operation, request.algorithm, request.topology
    counts = _counts(request.n, topology, request.slices)
    if request.between_nodes:
        reason = _not_between_nodes(operation, algorithm, topology)
        if reason:
            raise ValueError(f"{operation.value} over {topology} cannot be encoded only between nodes: {reason}")
        candidates = [request.laid_out(Algorithm.HIERARCHICAL, count) for count in counts]
        candidates += [request.laid_out(Algorithm.NATIVE, 1)] if algorithm is Algorithm.AUTO else []
        return _best(candidates, links, "encoded between nodes only")
    if algorithm not in (Algorithm.AUTO, Algorithm.ENCODED):
        reason = refusal(operation, algorithm, topology, feedback=request.feedback)
        if reason:
            raise ValueError(f"{algorithm.value} does not support {operation.value} over {topology}: {reason}")
        return _best([request.laid_out(algorithm, count) for count in counts], links, "asked for")
    candidates = [
        request.laid_out(candidate, count)
        for candidate in _candidates(operation, topology, algorithm)
        if not refusal(operation, candidate, topology, feedback=request.feedback)
        for count in counts
    ]
    return _best(candidates, links, "fastest")


def refusal(operation: Operation, algorithm: Algorithm, topology: Topology, *, feedback: bool = False) -> str | None:
    """Return why an algorithm does not support an operation on a topology, or None if it does."""
    if algorithm is Algorithm.HOMOMORPHIC and operation is not Operation.ALL_REDUCE:
        return "the algorithm supports only all-reduce"
    if operation in ROOTED:
        return None  # a chain or tree, or direct messages to the root, with any algorithm
    if algorithm is Algorithm.DOUBLING and operation is not Operation.ALL_REDUCE:
        return "the algorithm supports only all-reduce"
    if algorithm in (Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_ENCODED) and not topology.regular_nodes:
        return "the algorithm requires the same number of ranks on every node"
    if feedback and algorithm in (Algorithm.RING, Algorithm.DOUBLING, Algorithm.HOMOMORPHIC):
        return "the algorithm does not support error feedback"
    return None


def _not_between_nodes(operation: Operation, algorithm: Algorithm, topology: Topology) -> str | None:
    """Return why encoding cannot be restricted to traffic between nodes, or None if it can."""
    if operation in ROOTED:
        if topology.per_node == 1:
            return None
        if operation is Operation.BROADCAST:
            return "a broadcast forwards the data that its root has encoded"
        return "all ranks send their messages to the root in the same way"
    if algorithm not in (Algorithm.HIERARCHICAL, Algorithm.AUTO):
        return f"{algorithm.value} does not distinguish messages between nodes from messages within nodes"
    return refusal(operation, Algorithm.HIERARCHICAL, topology)


def _candidates(operation: Operation, topology: Topology, algorithm: Algorithm) -> Sequence[Algorithm]:
    chosen = [Algorithm.TWO_SHOT]
    if operation is Operation.ALL_REDUCE:
        chosen.append(Algorithm.DOUBLING)
    if topology.nodes > 1 and topology.per_node > 1 and topology.regular_nodes:
        chosen.append(Algorithm.HIERARCHICAL)
    if algorithm is Algorithm.AUTO:
        chosen.append(Algorithm.NATIVE)
    return chosen


def _counts(n: int, topology: Topology, slices: int | None) -> Sequence[int]:
    """List the slice counts to consider.

    Counts are limited so that each slice has enough elements to justify a message.
    """
    if slices is not None:
        return [slices]
    most = max(1, n // (topology.ranks * 4 * UNIT))
    return [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= most]


def _best(candidates: Sequence[Plan], links: Links, why: str) -> Plan:
    """Select the fastest plan.

    A plan with a codec is preferred to the library's own algorithm only if the gain is large enough.
    """
    library = [candidate for candidate in candidates if candidate.algorithm is Algorithm.NATIVE]
    others = [candidate for candidate in candidates if candidate.algorithm is not Algorithm.NATIVE]
    if len(candidates) == 1 or not others:
        return replace(candidates[0], why=why)
    # measured plans are not compared with modeled plans: a model that underestimates would always win
    measured = [other for other in others if measured_seconds(other, links) is not None]
    best = min(measured or others, key=lambda other: seconds(other, links))
    expected, word = seconds(best, links), "measured" if measured else "expected"
    if library:
        plain, margin = seconds(library[0], links), _MEASURED
        if not measured or measured_seconds(library[0], links) is None:
            # compare both with the model, so that its errors cancel; use the library's measurement if it is shorter
            plain, margin = min(plain, model_seconds(library[0], links)), _EXPECTED
        if expected > margin * plain:
            return replace(library[0], why=f"{plain * 1e6:.0f} us; {best.codec.name} {expected * 1e6:.0f} us {word}")
    return replace(best, why=f"{why}, {expected * 1e6:.0f} us {word}")
