"""Schemes and result rows of collective measurements.

This module does not import MPI, because options are checked before ranks start.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Channel
from hpcbench.comm.links import Links
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.planner import Request, plan, refusal
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase
from hpcbench.errors import UserError

_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class MeasuredScheme:
    """A codec and an algorithm."""

    codec: str
    algorithm: Algorithm
    slices: int | None = None

    def channel(self) -> Channel:
        """Return a new channel whose counters are zero.

        Raises
        ------
        UserError
            The codec does not exist, or the algorithm does not support it.
        """
        try:
            codec = get_codec(self.codec)
            codec.wire_bytes(1, _FLOAT)
            return Channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, codec, self.algorithm, slices=self.slices)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            message = str(error)
            raise UserError(message if self.codec in message else f"codec {self.codec}: {message}") from None

    def __str__(self) -> str:
        cut = f" x{self.slices}" if self.slices else ""
        return f"{get_codec(self.codec).name} {self.algorithm.value}{cut}"


@dataclass(frozen=True)
class CollectiveRow:
    """Result of a scheme or of the library at one size."""

    operation: str
    bytes: int
    """Bytes of the vector."""
    scheme: str
    """Requested scheme. ``native`` is the faster of the library's two calls."""
    codec: str
    algorithm: str
    """Algorithm used, or the library call for ``native``."""
    slices: int
    seconds: float
    """Median over repeats of the slowest rank's time."""
    seconds_least: float
    algorithm_bandwidth: float
    """Bytes of the vector per second."""
    bus_bandwidth: float
    """Bytes per second over each link if the algorithm were bandwidth-optimal, as in nccl-tests."""
    speedup: float
    """Library time divided by scheme time, as the median over interleaved repeats."""
    relative_error: float
    """Norm of the error divided by the norm of the exact result, accumulated in float64."""
    message_bytes: int
    """Uncompressed bytes that all ranks sent."""
    wire_bytes: int
    plain_calls: int
    """Number of calls that the library ran: 1 or 0."""

    @property
    def wire_share(self) -> float:
        """Wire bytes per message byte, or 1 if no messages were sent."""
        return self.wire_bytes / self.message_bytes if self.message_bytes else 1.0

    @property
    def how(self) -> str:
        """Algorithm and number of slices."""
        return f"{self.algorithm} x{self.slices}" if self.slices > 1 else self.algorithm


@dataclass(frozen=True)
class Wanted:
    """The cases to measure."""

    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    schemes: tuple[MeasuredScheme, ...]
    repeats: int

    def cases(self) -> Iterator[tuple[str, int]]:
        """Yield pairs (operation, size)."""
        return ((operation, nbytes) for operation in self.operations for nbytes in self.sizes)


def make_plan(operation: str, nbytes: int, scheme: MeasuredScheme, topology: Topology, links: Links) -> Plan | str:
    """Return a scheme's plan, or the reason why no plan exists."""
    if operation == "all-to-all":
        return "all-to-all has only one plan: a direct exchange of encoded parts"
    kind = Operation(operation)
    reason = refusal(kind, scheme.algorithm, topology)
    if reason:
        return f"{scheme.algorithm.value} does not support {operation} over {topology}: {reason}"
    codec = scheme.channel().codec
    request = Request(kind, nbytes // 4, _FLOAT, topology, codec, algorithm=scheme.algorithm, slices=scheme.slices)
    return plan(request, links)
