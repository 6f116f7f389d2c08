"""Counts of sent messages, which operations add to channels."""

from dataclasses import dataclass


@dataclass
class MessageCounts:
    """Message bytes before and after the codec, and codec time, on one rank."""

    message_bytes: int = 0
    """Bytes before the codec."""
    wire_bytes: int = 0
    """Bytes after the codec."""
    coded_bytes: int = 0
    """Message bytes that were encoded. Small parts of a call may be sent unencoded."""
    network_bytes: int = 0
    """Wire bytes that left the node. The number is unknown for the MPI library's own collectives."""
    encode_s: float = 0.0
    decode_s: float = 0.0
    lost_overflows: int = 0
    """Number of messages with NaN or infinity that were hidden from the receiver by the codec."""

    def add_messages(self, other: "MessageCounts") -> None:
        """Add the counts of other messages."""
        self.message_bytes += other.message_bytes
        self.wire_bytes += other.wire_bytes
        self.coded_bytes += other.coded_bytes
        self.network_bytes += other.network_bytes
        self.encode_s += other.encode_s
        self.decode_s += other.decode_s
        self.lost_overflows += other.lost_overflows
