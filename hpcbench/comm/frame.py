"""The frame of an encoded message: its bytes, followed by a checksum of 64 bits (XXH3).

A network's own checks are weak (16 bits in TCP) or end at the adapter, and a codec decodes most damaged streams to some
number. The frame's bytes count neither as message bytes nor as wire bytes, like the headers of the network. Groups
within one node send no checksum.
"""

import numpy as np
from xxhash import xxh3_64_intdigest

from hpcbench.comm.arrays import Array
from hpcbench.errors import TransitError

BYTES = 8
"""Bytes of the checksum."""


def seal(buffer: Array, used: int) -> Array:
    """Append the checksum to the first `used` bytes of `buffer`, and return the message."""
    message = buffer[: used + BYTES]
    message[used:] = np.frombuffer(_checksum(buffer[:used]), np.uint8)
    return message


def opened(message: Array, sender: int) -> Array:
    """Verify the checksum of a message, and return its bytes without it.

    Raises
    ------
    TransitError
        The message has changed on its way.
    """
    used = message.size - BYTES
    if used < 0 or message[used:].tobytes() != _checksum(message[:used]):
        raise TransitError(
            f"a message of {message.size} bytes from rank {sender} was changed on its way (its checksum does not "
            "match): look for errors of the network on both nodes; this run's results are void"
        )
    return message[:used]


def _checksum(content: Array) -> bytes:
    return xxh3_64_intdigest(content.data).to_bytes(BYTES, "little")
