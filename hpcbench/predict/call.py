"""Communication call of a training step, and the bytes that a call sends. Pure."""

from dataclasses import dataclass

from hpcbench.contract.traffic import Traffic

WIDTHS = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes per value for each precision."""


@dataclass(frozen=True)
class PredictedCall:
    """A collective or a point-to-point message."""

    channel: Traffic
    """Traffic channel that the call belongs to."""
    operation: str
    """``all-reduce``, ``reduce-scatter``, ``all-gather``, ``all-to-all`` or ``send``. ``broadcast`` and ``reduce``
    stand for a sequence of collectives, one for each rank's piece."""
    elements: int
    """Number of elements in the whole vector. For an all-to-all, the whole vector is the vector of one rank."""
    width: int
    """Number of bytes per element on the wire."""
    group: str
    """``tp``, ``cp``, ``dp`` (the replicas), ``node`` (consecutive replicas on one node), ``ep`` (ranks that hold
    different experts), ``edp`` (ranks that hold the same experts), ``pp``, ``ends`` (first and last stage), ``world``,
    or axes of the tensor grid, one letter each."""
    codec: str = ""
    """Codec of this call, or an empty string for the codec of the channel."""

    def message_bytes(self, size: int, index: int) -> int:
        """Return the number of bytes that member `index` of a group of `size` ranks sends."""
        if self.operation == "send":
            return self.elements * self.width
        # Pieces match `contract.shards`. No list is built, because a group may have thousands of ranks.
        base, longer = divmod(self.elements, size)
        piece = base + (index < longer)
        scattered, gathered = self.elements - piece, (size - 1) * piece
        elements = {
            "all-reduce": scattered + gathered,
            "reduce-scatter": scattered,
            "all-gather": gathered,
            "all-to-all": scattered,
            "broadcast": gathered,
            "reduce": scattered,
        }
        return elements[self.operation] * self.width


RepeatedCall = tuple[PredictedCall, int]
"""A call and its number of sequential repetitions."""
