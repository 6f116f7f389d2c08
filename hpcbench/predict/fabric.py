"""Time of messages and library collectives by size and placement, from measured curves and nominal bandwidths.

A collective of n ranks moves ``2 (n-1)/n`` times its bytes over the bus for an all-reduce, a broadcast and a reduction
to a root, and ``(n-1)/n`` for other collectives. Within a node, the bus bandwidth was measured for each size and number
of devices. Between nodes, the network of a node is shared by all groups that have ranks on the node.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from hpcbench.predict import constants
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.core_costs import CoreCosts
from hpcbench.predict.tables import read_table

ROUNDS = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1, "all-to-all": 1, "broadcast": 2, "reduce": 2}
"""Rounds of a collective. A large broadcast consists of a scatter and an all-gather. A reduction to a root consists of
a reduce-scatter and a gather.
"""
PIECEWISE = ("broadcast", "reduce")
"""Operations that consist of a sequence of collectives, one for each rank's piece."""
_PAIRWISE = ("reduce-scatter", "all-gather")
"""Operations that a library may implement with direct messages between all pairs of ranks."""
_LOOKED_UP = {
    "V100": ("one node", "V100"),
    "A100": ("one node", "A100"),
    "H100": ("Azure node", "H100-SXM"),
    "B200": ("AWS p6", "B200"),
}


@dataclass(frozen=True)
class GroupPlacement:
    """Placement of a group's ranks."""

    nodes: int
    """Number of nodes with ranks of the group."""
    per_node: int
    """Number of the group's ranks on each of these nodes."""
    concurrent: int = 1
    """Number of groups of the same kind that send concurrently on each of these nodes."""

    @property
    def ranks(self) -> int:
        """Number of ranks on all nodes."""
        return self.nodes * self.per_node


@dataclass(frozen=True)
class Fabric:
    """The links of a machine."""

    family: str
    """Family of devices, for the curves within a node; ``cpu`` for links through memory."""
    within_bytes_per_s: float
    """Bandwidth of one rank within a node in bytes per second, for families without a curve."""
    within_latency_s: float
    node_bytes_per_s: float
    """Nominal one-way network bandwidth of a node in bytes per second."""
    node_latency_s: float
    share: float
    """Achieved fraction of the nominal bandwidth."""
    within_basis: InputBasis
    between_basis: InputBasis
    library: tuple[tuple[str, float], ...] = ()
    """Pairs (library collective, ratio of measured to modeled time for a large vector)."""
    library_place: GroupPlacement | None = None
    """Placement of the ranks in the measurement of `library`."""
    core_costs: CoreCosts | None = None
    """Core time of messages for ranks that share cores, or None if each rank has its own cores."""

    def describe(self, *, between: bool) -> str:
        """Describe the bandwidth of the links between or within nodes."""
        if between:
            return f"{self.node_bytes_per_s * 8e-9:.4g} Gbit/s per node between nodes"
        return f"{self.within_bytes_per_s / 1e9:.4g} GB/s per rank within nodes"

    def library_factor(self, operation: str, place: GroupPlacement) -> float:
        """Return the time factor of a library collective.

        The all-reduce factor is used for operations without measurements.

        A library that sends each piece directly to its owner sends more bytes between nodes than a ring, if a node has
        several ranks. The part of the factor that these bytes explain depends on the placement. With two ranks, every
        algorithm exchanges the same bytes. The other part of the factor is 1 for two ranks and grows with the number of
        rounds up to the measured number of ranks.
        """
        factors, measured = dict(self.library), self.library_place
        factor = factors.get(operation, factors.get("all-reduce", 1.0))
        if measured is None or measured.ranks <= 2:
            return factor
        if operation in _PAIRWISE and measured.nodes > 1 and place.nodes > 1:
            more = _compare_pairwise(measured) - 1
            share = min(max(factor - 1, 0.0) / more, 1.0) if more > 0 else 0.0
            return factor * (1 + share * (_compare_pairwise(place) - 1)) / (1 + share * more)
        if place.ranks >= measured.ranks:
            return factor
        return float(factor ** (math.log2(place.ranks / 2) / math.log2(measured.ranks / 2)))

    def collective_seconds(self, operation: str, nbytes: float, place: GroupPlacement) -> float:
        """Return the time in seconds of a library collective on a vector of `nbytes`, on otherwise idle links."""
        return sum(self.collective_parts(operation, nbytes, place))

    def nccl_parts(self, operation: str, nbytes: float, place: GroupPlacement) -> tuple[float, float]:
        """Return the result of `collective_parts` for NCCL on many nodes.

        Gathers and reduce-scatters use a ring, so their latency grows with the number of ranks. Rings of the same
        collective share the network, so the bandwidth falls with a power of the number of switches.
        """
        inside, network = self.collective_parts(operation, nbytes, place)
        if place.nodes == 1 or not nbytes:
            return inside, network
        if operation in _PAIRWISE:
            ring = place.nodes * self.node_latency_s + (place.ranks - place.nodes) * self.within_latency_s
            inside += max(ring - math.log2(place.nodes) * self.node_latency_s, 0.0)
        rank_share = self.node_bytes_per_s / (place.per_node * place.concurrent)
        switches = place.nodes / (constants.LEAF_NODES * rank_share)
        crowd = max(switches, 1.0) ** constants.CONTENTION_POWER
        return inside, network * crowd

    def collective_parts(self, operation: str, nbytes: float, place: GroupPlacement) -> tuple[float, float]:
        """Return the seconds for latency and links within a node, and the busy seconds of the node's network.

        The slower link determines the time and hides the time of the faster link.
        """
        if place.ranks == 1 or not nbytes:
            return 0.0, 0.0
        inside = self._within(operation, nbytes, place.per_node) if place.per_node > 1 else 0.0
        network = 0.0
        if place.nodes > 1:
            n, rounds = place.ranks, ROUNDS[operation]
            network = rounds * (n - 1) / n * nbytes * place.concurrent / (self.node_bytes_per_s * self.share)
            inside = self._start(operation, place) + max(inside - network, 0.0)
        if operation in PIECEWISE:
            inside += (place.ranks - 1) * self._start(operation, place)
        return inside, network

    def _start(self, operation: str, place: GroupPlacement) -> float:
        """Return the size-independent time of a collective in seconds."""
        if place.nodes == 1:
            return constants.COLLECTIVE_S + ROUNDS[operation] * (place.per_node - 1) * self.within_latency_s
        return constants.COLLECTIVE_S + ROUNDS[operation] * math.log2(place.nodes) * self.node_latency_s

    def message_parts(self, nbytes: float, *, crossing: bool, concurrent: int = 1) -> tuple[float, float]:
        """Return the parts of a point-to-point message's time while `concurrent` ranks on the node send messages."""
        if crossing:
            return self.node_latency_s, nbytes * concurrent / (self.node_bytes_per_s * self.share)
        return self.within_latency_s + nbytes / (0.75 * self.within_bytes_per_s), 0.0

    def _within(self, operation: str, nbytes: float, ranks: int) -> float:
        rounds = ROUNDS[operation]
        moved = rounds * (ranks - 1) / ranks * nbytes
        curve = _curve(self.family, ranks)
        if not curve:
            steps = rounds * (ranks - 1)
            return constants.COLLECTIVE_S + steps * self.within_latency_s + moved / (0.75 * self.within_bytes_per_s)
        rate = _bus(curve, nbytes)
        if operation != "all-reduce":
            rate = min(rate, constants.RING_BYTES_PER_S.get(self.family, rate))  # The switch sums only all-reduces.
        return constants.COLLECTIVE_S / 2 + moved / rate


def _compare_pairwise(place: GroupPlacement) -> float:
    """Return the inter-node bytes of pairwise messages divided by the inter-node bytes of a ring."""
    return place.per_node * (place.ranks - place.per_node) / (place.ranks - 1)


def _bus(curve: tuple[tuple[float, float], ...], nbytes: float) -> float:
    """Return the bus bandwidth in bytes per second at a size, by log-log interpolation.

    Below the smallest size, the time is constant.
    """
    x = math.log(nbytes)
    if x <= curve[0][0]:
        return math.exp(curve[0][1] + x - curve[0][0]) if x > curve[0][0] - 3 else math.exp(curve[0][1] - 3)
    if x >= curve[-1][0]:
        return math.exp(curve[-1][1])
    k = next(k for k, (size, _) in enumerate(curve) if size >= x)
    (x0, y0), (x1, y1) = curve[k - 1], curve[k]
    return math.exp(y0 + (x - x0) / (x1 - x0) * (y1 - y0))


@lru_cache(maxsize=64)
def _curve(family: str, ranks: int) -> tuple[tuple[float, float], ...]:
    """Return (log bytes, log bus bytes/s) pairs of intra-node all-reduces for the nearest number of ranks."""
    if family not in _LOOKED_UP:
        return ()
    system, gpu = _LOOKED_UP[family]
    curves: dict[int, list[tuple[float, float]]] = {}
    for row in read_table("links.csv"):
        if (row["system"], row["gpu"], row["collective"]) == (system, gpu, "all_reduce") and row["size_bytes"]:
            point = math.log(float(row["size_bytes"])), math.log(float(row["busbw_GBps"]) * 1e9)
            if int(row["gpus"]) <= int(row["gpus_per_node"]):
                curves.setdefault(int(row["gpus"]), []).append(point)
    if not curves:
        return ()
    return tuple(sorted(curves[min(curves, key=lambda count: abs(count - ranks))]))
