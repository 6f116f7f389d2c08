"""What is measured of collectives, and what comes out. Without MPI: options are checked before ranks are started."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Channel
from hpcbench.comm.links import Links
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.planner import Request, plan, refusal
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm, Dimension, Kind, Phase
from hpcbench.errors import UserError

_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True)
class Scheme:
    """A codec and who carries its messages."""

    codec: str
    algorithm: Algorithm
    slices: int | None = None

    def channel(self) -> Channel:
        """A new one, with nothing counted.

        Raises
        ------
        UserError
            No such codec, or the algorithm does not go with it.
        """
        try:
            codec = get_codec(self.codec)
            codec.wire_bytes(1, _FLOAT)
            return Channel(Dimension.DP, Phase.BACKWARD, Kind.GRAD, codec, self.algorithm, slices=self.slices)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            message = str(error)
            raise UserError(message if self.codec in message else f"codec {self.codec}: {message}") from None

    def __str__(self) -> str:
        cut = f" x{self.slices}" if self.slices else ""
        return f"{get_codec(self.codec).name} {self.algorithm.value}{cut}"


@dataclass(frozen=True)
class Row:
    """A scheme, or the library, at one size."""

    operation: str
    bytes: int
    """Of the vector."""
    scheme: str
    """As asked for; ``native`` is the faster of the library's two calls."""
    codec: str
    algorithm: str
    """That carried it out; of the library which call."""
    slices: int
    seconds: float
    """Median of the turns, each of them that of the slowest rank."""
    seconds_least: float
    algorithm_bandwidth: float
    """Bytes of the vector a second."""
    bus_bandwidth: float
    """Bytes a second over each link, were the algorithm bandwidth-optimal (nccl-tests)."""
    speedup: float
    """Native seconds for each of these: the median over turns that were taken side by side."""
    relative_error: float
    """Root of the squared error over that of the squares of what the result should be, summed in float64."""
    message_bytes: int
    """That all ranks sent, before the codec."""
    wire_bytes: int
    plain_calls: int
    """1 where the plan left the call to the library."""

    @property
    def wire_share(self) -> float:
        return self.wire_bytes / self.message_bytes if self.message_bytes else 1.0

    @property
    def how(self) -> str:
        """The plan in two words."""
        return f"{self.algorithm} x{self.slices}" if self.slices > 1 else self.algorithm


@dataclass(frozen=True)
class Wanted:
    """What to measure."""

    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    schemes: tuple[Scheme, ...]
    repeats: int

    def cases(self) -> Iterator[tuple[str, int]]:
        return ((operation, nbytes) for operation in self.operations for nbytes in self.sizes)


def planned(operation: str, nbytes: int, scheme: Scheme, topology: Topology, links: Links) -> Plan | str:
    """The plan of a scheme, or why there is none."""
    if operation == "all-to-all":
        return "direct exchange, every part encoded: there is nothing to choose"
    kind = Operation(operation)
    reason = refusal(kind, scheme.algorithm, topology)
    if reason:
        return f"{scheme.algorithm.value} does no {operation} over {topology}: {reason}"
    codec = scheme.channel().codec
    request = Request(kind, nbytes // 4, _FLOAT, topology, codec, algorithm=scheme.algorithm, slices=scheme.slices)
    return plan(request, links)
