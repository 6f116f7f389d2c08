"""Link rates, message transfer times, and token bucket parameters."""

import re

from hpcbench.errors import UserError

_QUEUE = 16_000_000
"""Queue size of a link in bytes, which avoids TCP packet loss. A queue of 10 ms reduced the speed by a third."""
_OFFLOADED = 70_000
"""Maximum size in bytes of a segmentation offload packet, including the headers of all segments."""
_PAYLOAD, _HEADERS = 1448, 66
"""Payload and header size in bytes of a full TCP Ethernet frame."""


def bits_per_second(rate: str) -> float:
    """Convert a rate in the format of ``tc``, such as ``"50mbit"`` or ``"2.5gbit"``, to bits per second.

    Raises
    ------
    UserError
        The format is invalid, or the rate is not between 100 kbit/s and 1000 Gbit/s.
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", rate)
    bits = float(parts[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[parts[2]] if parts else 0.0
    if not 1e5 <= bits <= 1e12:
        raise UserError(f"link rate {rate!r}: give a rate from 100kbit to 1000gbit, such as 50mbit or 2.5gbit")
    return bits


def seconds_on_link(nbytes: int, rate: str) -> float:
    """Return the transfer time of a TCP message on an idle link in seconds, without latency.

    The time is the total size of the Ethernet frames divided by the rate. A frame contains 66 bytes of headers
    (Ethernet, IP, TCP with timestamps) and up to 1448 bytes of the message. For the behavior of links, see
    :class:`~hpcbench.testing.hosts.Hosts`.
    """
    frames = max(1, -(-nbytes // _PAYLOAD))
    return (nbytes + frames * _HEADERS) * 8 / bits_per_second(rate)


def bucket(rate: str | None) -> tuple[str, str, str]:
    """Return rate, burst, and queue size for limit.sh.

    The burst is the amount of data sent in 1 ms, so that a late timer does not slow down the link. The burst is at
    least the size of a segmentation offload packet, because splitting these packets costs CPU time.
    """
    if rate is None:
        return "0", "0", "0"
    bits = bits_per_second(rate)
    return f"{bits:.0f}bit", str(max(int(bits / 8 / 1000), _OFFLOADED)), str(_QUEUE)
