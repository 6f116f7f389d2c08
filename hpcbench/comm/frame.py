"""Frame of an encoded message: its bytes, followed by a 64-bit checksum (XXH3).

Network checksums are weak (16 bits in TCP) or end at the adapter, and codecs decode most damaged streams without an
error. Like network headers, the checksum counts neither as message bytes nor as wire bytes. Groups within one node send
no checksum.
"""

import numpy as np
from xxhash import xxh3_64_intdigest

from hpcbench.comm.arrays import Array
from hpcbench.errors import TransitError

BYTES = 8
"""Size of the checksum in bytes."""


def seal(buffer: Array, used: int) -> Array:
    """Append the checksum to the first `used` bytes of `buffer`, and return the message."""
    message = buffer[: used + BYTES]
    message[used:] = np.frombuffer(_checksum(buffer[:used]), np.uint8)
    return message


def opened(message: Array, sender: int) -> Array:
    """Verify the checksum of a message, and return the message without the checksum.

    Raises
    ------
    TransitError
        The message was damaged in transit.
    """
    used = message.size - BYTES
    if used < 0 or message[used:].tobytes() != _checksum(message[:used]):
        raise TransitError(
            f"a message of {message.size} bytes from rank {sender} was damaged in transit (its checksum does not "
            "match), so this run's results are invalid: look for network errors on both nodes"
        )
    return message[:used]


def _checksum(content: Array) -> bytes:
    return xxh3_64_intdigest(content.data).to_bytes(BYTES, "little")
