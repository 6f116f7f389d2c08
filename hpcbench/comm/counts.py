"""Counts of sent messages, which operations add to channels."""

from dataclasses import dataclass


@dataclass
class MessageCounts:
    """Bytes of messages before and after the codec, and the codec's time, on one rank."""

    message_bytes: int = 0
    """Bytes before the codec."""
    wire_bytes: int = 0
    """Bytes after the codec."""
    coded_bytes: int = 0
    """Message bytes that went through the codec: small parts of a call may not."""
    network_bytes: int = 0
    """Wire bytes that left the node. The MPI library's own collectives do not report them."""
    encode_s: float = 0.0
    decode_s: float = 0.0
    lost_overflows: int = 0
    """Messages with NaN or infinite values, encoded by a codec that hides them from the receiver."""

    def add_messages(self, other: "MessageCounts") -> None:
        """Add the counts of other messages."""
        self.message_bytes += other.message_bytes
        self.wire_bytes += other.wire_bytes
        self.coded_bytes += other.coded_bytes
        self.network_bytes += other.network_bytes
        self.encode_s += other.encode_s
        self.decode_s += other.decode_s
        self.lost_overflows += other.lost_overflows
