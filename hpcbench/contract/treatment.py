"""The treatment of messages: the result of the rules of a scheme for one kind of traffic."""

from dataclasses import dataclass, field

from hpcbench.codecs import spec
from hpcbench.contract.traffic import Algorithm


@dataclass(frozen=True)
class Treatment:
    """The codec, algorithm and feedback for messages of one kind of traffic."""

    codec: str
    algorithm: Algorithm
    feedback: bool = False
    """Whether the error of each message is added to the next message. The value is False if messages have no error."""
    min_bytes: int = 0
    between_nodes: bool = False
    low_rank: int = 0
    """Rank of the low-rank approximation of gradient matrices, or 0 to send gradients without approximation."""
    feedback_average: float = 0.0
    """Weight of the previous residual in the moving average of errors, or 0 for plain feedback."""
    feedback_reset: int = 0
    """Number of updates after which residuals are set to zero, or 0 for never."""
    differences: bool = False
    """Whether messages contain the changes of weights since the previous gather instead of the weights."""
    sample_changes: int = 0
    """Number of samples whose activations both stages keep, or 0 to send activations instead of changes."""
    rule: int = field(default=0, compare=False)
    """Index in `Scheme.all_rules`. Equality of treatments ignores this field."""
    mixed_bits: float = 0.0
    """Budget of mixed widths in bits per value, or 0 if widths are not mixed."""

    @property
    def is_random(self) -> bool:
        """Whether the codec uses stochastic or correlated rounding."""
        return self.codec.endswith((":stochastic", ":correlated"))

    @property
    def keeps_errors(self) -> bool:
        """Whether ranks keep the error of each message and add it to the next message."""
        return self.feedback or self.low_rank > 0

    @property
    def depends_on_past(self) -> bool:
        """Whether a message depends on earlier messages: on their errors, or on values that they changed."""
        return self.keeps_errors or self.differences or self.sample_changes > 0

    @property
    def is_lossless(self) -> bool:
        """Whether the codec is lossless. The result is False for codecs from other packages."""
        return spec.parse(self.codec).lossless is True

    @property
    def refusal(self) -> str | None:
        """Why the algorithm does not support this treatment, and the remedy, or None if it does."""
        if self.algorithm is Algorithm.NATIVE and self.codec != "none":
            return (
                f"algorithm native runs no codec, but the codec is {self.codec}: use algorithm encoded, or codec none"
            )
        if self.algorithm is Algorithm.NATIVE and self.feedback:
            return "algorithm native keeps no errors for feedback: use algorithm encoded, or leave feedback out"
        if self.algorithm is Algorithm.HOMOMORPHIC and (spec.split(self.codec)[0] != "int8" or self.is_random):
            return (
                "algorithm homomorphic sums 8-bit integers, rounded to nearest: use codec int8 instead of "
                f"{self.codec}, or algorithm encoded"
            )
        if self.between_nodes and self.algorithm not in (Algorithm.AUTO, Algorithm.HIERARCHICAL):
            return f"between_nodes needs algorithm hierarchical or auto, not {self.algorithm.value}"
        return None

    def plain_because(self, nbytes: float, *, one_node: bool) -> str | None:
        """Return why a message is not encoded, or None if it is.

        The decision depends only on the unencoded size and the placement of the group, so all ranks make the same
        decision.
        """
        if self.codec == "none":
            return None
        if nbytes < self.min_bytes:
            return f"{nbytes} bytes, less than min_bytes {self.min_bytes}"
        return (
            "its ranks share a node, and only messages between nodes are encoded"
            if self.between_nodes and one_node
            else None
        )
