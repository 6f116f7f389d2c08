"""What links and codecs are able to do, and from that the time that a plan is expected to take.

A model in the manner of alpha, beta and gamma: a latency a message, a bandwidth a link, a speed a codec. Slices that
follow each other hide all but the slowest resource. `hpcbench bench network` measures the numbers; the defaults are
those of a cluster with 100 Gbit/s a node, so that a plan can be made before anything was measured.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.comm.topology import Topology
from hpcbench.errors import UserError

if TYPE_CHECKING:
    from hpcbench.comm.plan import Plan

SCHEMA = 1
_GAP = 16
_NOT_HIDDEN = 0.25
"""Share of the shorter of wire and work that overlap does not hide: both want the cores and the memory."""


@dataclass(frozen=True)
class Link:
    """One level of the network."""

    latency_s: float
    """Of a message between two ranks."""
    bytes_per_s: float
    """Within nodes of one rank while all ranks send; between nodes of one node, all its ranks together."""


@dataclass(frozen=True)
class Speed:
    """A codec on one rank while all ranks of the node work."""

    encode_bytes_per_s: float
    """Bytes of values, before the codec."""
    decode_bytes_per_s: float
    call_s: float
    """Of a call with few values."""
    ratio: float
    """Bytes after the codec for each before it."""


@dataclass(frozen=True)
class Links:
    """A machine.

    Attributes
    ----------
    within, between
        Links inside a node and between nodes.
    codecs
        Speed by name of the codec.
    native
        Seconds that the MPI library's own collectives took: (operation, bytes, seconds).
    measured
        Seconds that plans took: (operation, codec, bytes, algorithm, slices, seconds). What was measured near the size
        at hand decides before the model does.
    """

    within: Link
    between: Link
    codecs: tuple[tuple[str, Speed], ...] = ()
    native: tuple[tuple[str, int, float], ...] = ()
    measured: tuple[tuple[str, str, int, str, int, float], ...] = ()
    blocking: tuple[tuple[str, int], ...] = ()
    """Of `native` those, (operation, bytes), that are times of the blocking call: it was the faster one."""
    ranks_per_node: tuple[int, ...] = ()
    """Where `native` and `measured` come from: they say nothing of other topologies. Empty: they hold for any."""

    def speed(self, codec: str) -> Speed:
        """Of the codec, or of a typical one where it was not measured."""
        return dict(self.codecs).get(codec, _TYPICAL)

    def seconds(self, plan: "Plan") -> float:
        """Time that a plan is expected to take: as measured, or else by the model."""
        known = self.measured_seconds(plan)
        return known if known is not None else self.model_seconds(plan)

    def measured_seconds(self, plan: "Plan") -> float | None:
        """Time that the plan took on its topology, near its size; None where that was not measured."""
        if self.foreign(plan.topology):
            return None
        nbytes = plan.n * plan.dtype.itemsize
        if plan.algorithm.value == "native":
            points = [(size, s) for operation, size, s in self.native if operation == plan.operation.value]
        else:
            key = plan.operation.value, plan.codec.name, plan.algorithm.value, len(plan.slices)
            points = [(size, s) for op, codec, size, how, count, s in self.measured if (op, codec, how, count) == key]
        return interpolate(sorted(points), nbytes)

    def blocks(self, operation: str, nbytes: int, topology: Topology) -> bool:
        """Whether the library's blocking call was the faster one at the measured size that is nearest."""
        sizes = [size for op, size, _ in self.native if op == operation]
        if not sizes or self.foreign(topology):
            return False
        nearest = min(sizes, key=lambda size: abs(math.log(size / max(nbytes, 1))))
        return (operation, nearest) in self.blocking

    def foreign(self, topology: Topology) -> str | None:
        """Why the measured times do not hold on a topology; None where they do."""
        if self.ranks_per_node in ((), shape(topology)):
            return None
        there = " + ".join(map(str, self.ranks_per_node))
        return f"measured with {there} ranks on {len(self.ranks_per_node)} nodes, not over {topology}"

    def model_seconds(self, plan: "Plan") -> float:
        """Time that the plan would take, were links and codecs all that costs."""
        nbytes = plan.n * plan.dtype.itemsize
        topology = plan.topology
        if plan.algorithm.value in ("native", "homomorphic"):
            rounds = 1 if plan.operation.value != "all-reduce" else 2
            nodes, per_node = topology.nodes, topology.per_node
            between = rounds * (nodes - 1) / nodes * nbytes / self.between.bytes_per_s
            within = rounds * (per_node - 1) / per_node * nbytes / self.within.bytes_per_s
            hops = rounds * math.ceil(math.log2(max(2, topology.ranks)))
            latency = self.between.latency_s if nodes > 1 else self.within.latency_s
            return hops * latency + between + within
        if plan.operation.value == "broadcast":
            return self._broadcast(plan)
        speed = self.speed(plan.codec.name)
        latency = wire = own = 0.0
        members = topology.members[0]
        for step in plan.steps(members[0], 0):
            parts = (*step.sends, *step.receives)
            crossing = any(not topology.near(members[0], part.peer) for part in parts)
            latency += (self.between if crossing else self.within).latency_s
            sent = sum(part.span.size for part in step.sends) * plan.dtype.itemsize
            size = sent * (speed.ratio if step.coded else 1.0)
            if crossing:
                wire += size * len(members) / self.between.bytes_per_s
            else:
                own += size / self.within.bytes_per_s
            own += len(parts) * speed.call_s  # to send or receive costs a rank about what a codec's call does
            if step.coded:
                spans = {part.span for part in step.sends}
                encoded = sum(span.size for span in spans) * plan.dtype.itemsize
                came = sum(part.span.size for part in step.receives) * plan.dtype.itemsize
                own += encoded / speed.encode_bytes_per_s + came / speed.decode_bytes_per_s
                own += (len(spans) + len(step.receives)) * speed.call_s
        hidden = min(wire, own)
        return latency + wire + own + (len(plan.slices) - 1) * (max(wire, own) + _NOT_HIDDEN * hidden)

    def _broadcast(self, plan: "Plan") -> float:
        """A slice's way to the last rank, and the other slices behind it: along the chain, or down the tree."""
        topology, speed, slices = plan.topology, self.speed(plan.codec.name), len(plan.slices)
        hops, crossing = topology.ranks - 1, topology.nodes - 1
        if slices == 1:
            hops, crossing = hops.bit_length(), crossing.bit_length()
        values = max(piece.size for (piece,) in plan.slices) * plan.dtype.itemsize
        wire = values * speed.ratio
        encode, decode = (values / rate + speed.call_s for rate in (speed.encode_bytes_per_s, speed.decode_bytes_per_s))
        within = self.within.latency_s + wire / self.within.bytes_per_s if hops > crossing else 0.0
        between = self.between.latency_s + wire / self.between.bytes_per_s if crossing else 0.0
        way = (hops - crossing) * within + crossing * between
        return encode + way + decode + (slices - 1) * max(within, between, encode, decode)


_TYPICAL = Speed(4e9, 4e9, 10e-6, 0.5)
DEFAULT = Links(Link(1e-6, 10e9), Link(5e-6, 12.5e9))


def shape(topology: Topology) -> tuple[int, ...]:
    """Ranks of each node, the fullest first: what has to be equal for times to be comparable."""
    return tuple(sorted((len(ranks) for ranks in topology.members), reverse=True))


def interpolate(points: list[tuple[int, float]], nbytes: int) -> float | None:
    """Seconds at `nbytes`, linear in both logarithms; None far from what was measured.

    Parameters
    ----------
    points
        Measured sizes in ascending order, and their seconds.
    nbytes
        Within a factor of two of a size, or between two that are a factor of 16 apart at most: a protocol changes in
        larger gaps.
    """
    if nbytes <= 0:
        return None
    below = next((point for point in reversed(points) if point[0] <= nbytes), None)
    above = next((point for point in points if point[0] >= nbytes), None)
    if below and above and below[0] < above[0] <= _GAP * below[0]:
        (x0, y0), (x1, y1) = below, above
        share = (math.log(nbytes) - math.log(x0)) / (math.log(x1) - math.log(x0))
        return math.exp(math.log(y0) + share * (math.log(y1) - math.log(y0)))
    if below and nbytes <= 2 * below[0]:
        return below[1] * nbytes / below[0]
    return above[1] if above and above[0] <= 2 * nbytes else None


def load(path: Path) -> Links:
    """Read what `hpcbench bench network` wrote.

    Raises
    ------
    UserError
        The file is missing, or is not what it should be.
    """
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: write it with `hpcbench bench network --json {path}`") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}): write it with `hpcbench bench network --json {path}`") from None
    try:
        if raw["schema"] != SCHEMA:
            raise UserError(f"{path}: schema {raw['schema']} is not known: measure again with `hpcbench bench network`")
        return Links(
            within=Link(**(raw["within"] or raw["between"])),  # null where each node has one rank
            between=Link(**(raw["between"] or raw["within"])),  # null where there is one node
            codecs=tuple((name, Speed(**speed)) for name, speed in raw["codecs"].items()),
            native=tuple((str(op), int(size), float(s)) for op, size, s in raw["native"]),
            measured=tuple(
                (str(op), str(codec), int(size), str(how), int(count), float(s))
                for op, codec, size, how, count, s in raw["measured"]
            ),
            blocking=tuple((str(op), int(size)) for op, size in raw.get("blocking", ())),
            ranks_per_node=tuple(int(ranks) for ranks in raw.get("ranks_per_node", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: not what `hpcbench bench network` writes ({type(error).__name__}: {error}): measure again"
        ) from None
