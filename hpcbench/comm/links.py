"""Speeds of links and codecs, which `hpcbench bench network` measures.

The defaults describe a cluster with 100 Gbit/s per node, so plans can be selected without measurements.
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcbench.comm.topology import Topology
from hpcbench.errors import UserError

SCHEMA = 1
_GAP = 16


@dataclass(frozen=True)
class Link:
    """One level of the network."""

    latency_s: float
    """Message latency between two ranks, in seconds."""
    bytes_per_s: float
    """Bandwidth.

    Within a node, the bandwidth is that of one rank while all ranks send. Between nodes, it is the bandwidth of a whole
    node.
    """


@dataclass(frozen=True)
class Speed:
    """Speed of a codec on one rank while all ranks of the node use the codec."""

    encode_bytes_per_s: float
    """Encoding speed, in bytes of input values per second."""
    decode_bytes_per_s: float
    call_s: float
    """Duration in seconds of a call with only a few values."""
    ratio: float
    """Encoded bytes divided by input bytes."""


@dataclass(frozen=True)
class Links:
    """Link and codec speeds of a machine.

    Attributes
    ----------
    within, between
        Links within a node and between nodes.
    codecs
        Speeds keyed by codec name.
    native
        Times of the MPI library's own collectives: (operation, bytes, seconds).
    measured
        Times of plans: (operation, codec, bytes, algorithm, slices, seconds). Measurements near the required size take
        precedence over the model.
    """

    within: Link
    between: Link
    codecs: tuple[tuple[str, Speed], ...] = ()
    native: tuple[tuple[str, int, float], ...] = ()
    measured: tuple[tuple[str, str, int, str, int, float], ...] = ()
    blocking: tuple[tuple[str, int], ...] = ()
    """Entries (operation, bytes) of `native` whose times were measured with blocking calls, which were faster."""
    ranks_per_node: tuple[int, ...] = ()
    """Ranks per node in the measurements of `native` and `measured`, which apply only to this topology.

    If empty, the measurements apply to any topology.
    """
    transport: str = "mpi"
    """Library whose messages were measured."""
    typical: Speed = Speed(4e9, 4e9, 10e-6, 0.5)
    """Assumed speed of an unmeasured codec."""

    def speed(self, codec: str) -> Speed:
        """Return the speed of a codec, or the typical speed if it was not measured."""
        return dict(self.codecs).get(codec, self.typical)

    def blocks(self, operation: str, nbytes: int, topology: Topology) -> bool:
        """Return whether the blocking call was faster at the nearest measured size."""
        sizes = [size for op, size, _ in self.native if op == operation]
        if not sizes or self.foreign(topology):
            return False
        nearest = min(sizes, key=lambda size: abs(math.log(size / max(nbytes, 1))))
        return (operation, nearest) in self.blocking

    def over(self, transport: str) -> "Links":
        """Return the links for a run over a transport.

        Collective times that were measured over another transport are left out.
        """
        if self.transport == transport:
            return self
        return replace(self, native=(), measured=(), blocking=())

    def other_transport(self, transport: str) -> str | None:
        """Return why the measurements do not describe a transport, or None if they do."""
        if self.transport == transport:
            return None
        return (
            f"measured over {self.transport}, but the run uses {transport}: the measured times of collectives are "
            "not used, and the measured speeds of links and codecs, which determine the plans, may not apply"
        )

    def foreign(self, topology: Topology) -> str | None:
        """Return why the measured times do not apply to a topology, or None if they apply."""
        if self.ranks_per_node in ((), shape(topology)):
            return None
        there = " + ".join(map(str, self.ranks_per_node))
        return f"measured with {there} ranks on {len(self.ranks_per_node)} nodes, but the run has {topology}"


DEFAULT = Links(Link(1e-6, 10e9), Link(5e-6, 12.5e9))


def shape(topology: Topology) -> tuple[int, ...]:
    """Return the ranks per node in descending order. Measured times apply to topologies with the same shape."""
    return tuple(sorted((len(ranks) for ranks in topology.members), reverse=True))


def interpolate(points: list[tuple[int, float]], nbytes: int) -> float | None:
    """Interpolate the time at `nbytes` on logarithmic scales.

    Return None if the size is far from the measured sizes.

    Parameters
    ----------
    points
        Measured sizes in ascending order with their times in seconds.
    nbytes
        Size within a factor of two of a measured size, or between two sizes that differ by at most a factor of 16.
        Larger gaps may include a protocol change.
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
    """Read a file written by `hpcbench bench network`.

    Raises
    ------
    UserError
        The file is missing or malformed.
    """
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}: create the file with `hpcbench bench network --output {path}`"
        ) from None
    except ValueError as error:
        raise UserError(
            f"{path}: is not JSON ({error}): create the file again with `hpcbench bench network --output {path}`"
        ) from None
    try:
        if raw["schema"] != SCHEMA:
            raise UserError(
                f"{path}: schema {raw['schema']} is not supported: measure again with `hpcbench bench network`"
            )
        return Links(
            within=Link(**(raw["within"] or raw["between"])),  # null if each node has one rank
            between=Link(**(raw["between"] or raw["within"])),  # null if there is one node
            codecs=tuple((name, Speed(**speed)) for name, speed in raw["codecs"].items()),
            native=tuple((str(op), int(size), float(s)) for op, size, s in raw["native"]),
            measured=tuple(
                (str(op), str(codec), int(size), str(how), int(count), float(s))
                for op, codec, size, how, count, s in raw["measured"]
            ),
            blocking=tuple((str(op), int(size)) for op, size in raw.get("blocking", ())),
            ranks_per_node=tuple(int(ranks) for ranks in raw.get("ranks_per_node", ())),
            transport=str(raw.get("transport", "mpi")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: is not a file of `hpcbench bench network` ({type(error).__name__}: {error}): measure again"
        ) from None
