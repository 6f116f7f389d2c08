"""One call of a training step, and the bytes that it sends. Pure."""

from dataclasses import dataclass

from hpcbench.contract.traffic import Traffic

WIDTHS = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a value."""


@dataclass(frozen=True)
class PredictedCall:
    """One collective, or one message.

    Attributes
    ----------
    channel
        What it belongs to.
    operation
        ``all-reduce``, ``reduce-scatter``, ``all-gather``, ``all-to-all`` or ``send``; ``broadcast`` and ``reduce``
        are one of each rank's piece, one after another.
    elements, width
        Elements of the whole vector, and bytes of each as it is sent. Of an all-to-all it is the vector of a rank.
    group
        ``tp``, ``cp``, ``dp`` (the replicas), ``node`` (replicas that are neighbours and share a node), ``ep`` (those
        that share out experts), ``edp`` (those that hold the same experts), ``pp``, ``ends`` (first and last stage),
        ``world``, or axes of the tensor grid, each a letter.
    """

    channel: Traffic
    operation: str
    elements: int
    width: int
    group: str

    def message_bytes(self, size: int, index: int) -> int:
        """Bytes that member `index` of `size` sends."""
        if self.operation == "send":
            return self.elements * self.width
        # what `contract.shards` says of pieces that differ by one at most, without making a list for thousands of ranks
        base, longer = divmod(self.elements, size)
        own = base + (index < longer)
        scattered, gathered = self.elements - own, (size - 1) * own
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
"""A call, and how often it is made, one after another."""
