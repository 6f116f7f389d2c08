"""Rates of links, the time that a message needs on one, and the bucket in which a host's packets wait for it."""

import re

from hpcbench.errors import UserError

_QUEUE = 16_000_000
"""Bytes that a link queues, enough that TCP loses none. With 10 ms of the rate it lost a third of its speed."""
_OFFLOADED = 70_000
"""Bytes of the largest packet of segmentation offload, with the headers of all its segments."""
_PAYLOAD, _HEADERS = 1448, 66
"""Bytes of a message in a full Ethernet frame of TCP, and bytes before them."""


def bits_per_second(rate: str) -> float:
    """Return the number of bits per second of a rate in the form of ``tc``, ``"50mbit"`` or ``"2.5gbit"``.

    Raises
    ------
    UserError
        The rate has another form, or is not between 100 kbit/s and 1000 Gbit/s.
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", rate)
    bits = float(parts[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[parts[2]] if parts else 0.0
    if not 1e5 <= bits <= 1e12:
        raise UserError(f"link rate {rate!r}: write it like 50mbit or 2.5gbit, from 100kbit to 1000gbit")
    return bits


def seconds_on_link(nbytes: int, rate: str) -> float:
    """Return the time that a message over TCP needs on a free link, without latency.

    It is the size of all its Ethernet frames over the rate. A frame has 66 bytes of headers (Ethernet, IP, TCP with
    time stamps) and up to 1448 of the message. See :class:`~hpcbench.testing.hosts.Hosts` for how links keep to it.
    """
    frames = max(1, -(-nbytes // _PAYLOAD))
    return (nbytes + frames * _HEADERS) * 8 / bits_per_second(rate)


def bucket(rate: str | None) -> tuple[str, str, str]:
    """Return rate, burst and queue for limit.sh.

    The burst is 1 ms of the rate, because a late timer must not slow down the link, but at least a packet of
    segmentation offload, because cutting those costs CPU time.
    """
    if rate is None:
        return "0", "0", "0"
    bits = bits_per_second(rate)
    return f"{bits:.0f}bit", str(max(int(bits / 8 / 1000), _OFFLOADED)), str(_QUEUE)
