"""How long messages and the libraries' own collectives take, by size and place: measured curves and nominal links.

A collective of n ranks moves ``2 (n-1)/n`` of its bytes over the bus for an all-reduce, a broadcast and a reduction to
a root, and ``(n-1)/n`` for the others. Within a node the bus has the bandwidth that was measured for the size and the
number of devices. Between nodes the node's network carries what all groups send at a time that the node has ranks of.
"""

import csv
import math
from dataclasses import dataclass
from functools import lru_cache

from hpcbench.predict import constants
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.core_costs import CoreCosts
from hpcbench.predict.products import TABLES

ROUNDS = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1, "all-to-all": 1, "broadcast": 2, "reduce": 2}
"""A large broadcast is a scatter and an all-gather, a reduction to a root a reduce-scatter and a gather."""
PIECEWISE = ("broadcast", "reduce")
"""One collective for each rank's piece, one after another."""
_STRAIGHT = ("reduce-scatter", "all-gather")
"""What a library may carry out by a message from each rank to each other one."""
_LOOKED_UP = {
    "V100": ("one node", "V100"),
    "A100": ("one node", "A100"),
    "H100": ("Azure node", "H100-SXM"),
}


@dataclass(frozen=True)
class GroupPlacement:
    """Where a group's ranks lie.

    Attributes
    ----------
    nodes
        That it reaches.
    per_node
        Its ranks on a node.
    alike
        Groups like it that send at the same time on each of those nodes.
    """

    nodes: int
    per_node: int
    concurrent: int = 1

    @property
    def ranks(self) -> int:
        """Number of ranks on all nodes."""
        return self.nodes * self.per_node


@dataclass(frozen=True)
class Fabric:
    """The links of a machine.

    Attributes
    ----------
    family
        Whose curves hold within a node; ``cpu`` for memory.
    within_bytes_per_s
        Bandwidth of one rank, used if there is no curve.
    node_bytes_per_s
        Bandwidth of a node's network, one way, as its maker says.
    """

    family: str
    within_bytes_per_s: float
    within_latency_s: float
    node_bytes_per_s: float
    node_latency_s: float
    share: float
    """Part of the nominal bandwidth that is reached."""
    within_basis: InputBasis
    between_basis: InputBasis
    library: tuple[tuple[str, float], ...] = ()
    """Collective -> what the library's own takes, measured, over what is reckoned here for a large vector."""
    library_place: GroupPlacement | None = None
    """Where that was measured."""
    core_costs: CoreCosts | None = None
    """What messages cost cores that ranks share; None where ranks have cores of their own."""

    def describe(self, *, between: bool) -> str:
        """Return the bandwidth of the links between nodes, or within them, in words."""
        if between:
            return f"{self.node_bytes_per_s * 8e-9:.4g} Gbit/s a node between nodes"
        return f"{self.within_bytes_per_s / 1e9:.4g} GB/s a rank within nodes"

    def library_factor(self, operation: str, place: GroupPlacement) -> float:
        """Factor of a library's collective; that of an all-reduce if it was not measured.

        A library that sends each piece straight to its owner sends more between nodes than a ring does, if a node has
        several ranks: as much of the factor as that explains goes with the place. Two ranks exchange in the same way
        whatever the algorithm; from there to the measured number of ranks the rest grows with the rounds.
        """
        known, measured = dict(self.library), self.library_place
        factor = known.get(operation, known.get("all-reduce", 1.0))
        if measured is None or measured.ranks <= 2:
            return factor
        if operation in _STRAIGHT and measured.nodes > 1 and place.nodes > 1:
            more = _straight(measured) - 1
            share = min(max(factor - 1, 0.0) / more, 1.0) if more > 0 else 0.0
            return factor * (1 + share * (_straight(place) - 1)) / (1 + share * more)
        if place.ranks >= measured.ranks:
            return factor
        return float(factor ** (math.log2(place.ranks / 2) / math.log2(measured.ranks / 2)))

    def collective_seconds(self, operation: str, nbytes: float, place: GroupPlacement) -> float:
        """Seconds of a library's collective of `nbytes` a rank (the whole vector), with nothing else on the links."""
        return sum(self.collective_parts(operation, nbytes, place))

    def collective_parts(self, operation: str, nbytes: float, place: GroupPlacement) -> tuple[float, float]:
        """Seconds that cost latency or the links within a node, and those that the node's network is busy.

        The slower of the two links decides; what it leaves of the other one is hidden.
        """
        if place.ranks == 1 or not nbytes:
            return 0.0, 0.0
        if operation in PIECEWISE:
            inside, network = self._parts(operation, nbytes, place)
            return inside + (place.ranks - 1) * self._start(operation, place), network
        return self._parts(operation, nbytes, place)

    def _start(self, operation: str, place: GroupPlacement) -> float:
        """What a collective costs whatever it moves."""
        if place.nodes == 1:
            return constants.COLLECTIVE_S + ROUNDS[operation] * (place.per_node - 1) * self.within_latency_s
        return constants.COLLECTIVE_S + ROUNDS[operation] * math.log2(place.nodes) * self.node_latency_s

    def _parts(self, operation: str, nbytes: float, place: GroupPlacement) -> tuple[float, float]:
        rounds = ROUNDS[operation]
        inside = 0.0
        if place.per_node > 1:
            inside = self._within(operation, nbytes, place.per_node)
        if place.nodes == 1:
            return inside, 0.0
        n = place.ranks
        network = rounds * (n - 1) / n * nbytes * place.concurrent / (self.node_bytes_per_s * self.share)
        hops = rounds * math.log2(place.nodes) if place.nodes > 1 else 0.0
        waiting = constants.COLLECTIVE_S + hops * self.node_latency_s
        return waiting + max(inside - network, 0.0), network

    def message_parts(self, nbytes: float, *, crossing: bool, alike: int = 1) -> tuple[float, float]:
        """The same of a message to one rank; `alike` ranks of the node send one at the same time."""
        if crossing:
            return self.node_latency_s, nbytes * alike / (self.node_bytes_per_s * self.share)
        return self.within_latency_s + nbytes / (0.75 * self.within_bytes_per_s), 0.0

    def _within(self, operation: str, nbytes: float, ranks: int) -> float:
        rounds = ROUNDS[operation]
        moved = rounds * (ranks - 1) / ranks * nbytes
        curve = _curve(self.family, ranks)
        if not curve:
            steps = rounds * (ranks - 1)
            return constants.COLLECTIVE_S + steps * self.within_latency_s + moved / (0.75 * self.within_bytes_per_s)
        rate = _bus(curve, nbytes)
        if operation != "all-reduce" and self.family == "H100":
            rate = min(rate, 362e9)  # sums in the switch serve all-reduces only
        return constants.COLLECTIVE_S / 2 + moved / rate


def _straight(place: GroupPlacement) -> float:
    """Bytes between nodes with a message from each rank to each other one, over those of a ring."""
    return place.per_node * (place.ranks - place.per_node) / (place.ranks - 1)


def _bus(curve: tuple[tuple[float, float], ...], nbytes: float) -> float:
    """Bytes a second at a size: linear in both logarithms; below the smallest size the time stays the same."""
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
    """Logarithms of bytes and of the bus's bytes a second of an all-reduce in a node, of the nearest count of ranks."""
    if family not in _LOOKED_UP:
        return ()
    system, gpu = _LOOKED_UP[family]
    found: dict[int, list[tuple[float, float]]] = {}
    with (TABLES / "links.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if (row["system"], row["gpu"], row["collective"]) == (system, gpu, "all_reduce") and row["size_bytes"]:
                point = math.log(float(row["size_bytes"])), math.log(float(row["busbw_GBps"]) * 1e9)
                found.setdefault(int(row["gpus"]), []).append(point)
    if not found:
        return ()
    return tuple(sorted(found[min(found, key=lambda count: abs(count - ranks))]))
