"""Rates of links, and the token bucket that keeps a link to its rate."""

import re

from hpcbench.errors import UserError

_QUEUE = 16_000_000
"""Bytes that a link queues, so many that TCP loses none. With 10 ms of the link's rate it lost a third of its speed."""


def bits_per_second(rate: str) -> float:
    """The number of bits per second of a rate in the form of ``tc``, ``"50mbit"`` or ``"2.5gbit"``.

    Raises
    ------
    UserError
        The rate has another form, or is below 100 kbit/s, where the burst is a large part of a message.
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", rate)
    bits = float(parts[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[parts[2]] if parts else 0.0
    if not 1e5 <= bits <= 1e12:
        raise UserError(f"link rate {rate!r}: write it like 50mbit or 2.5gbit, from 100kbit to 1000gbit")
    return bits


def bucket(rate: str | None) -> tuple[str, str, str]:
    """Rate, burst and queue for limit.sh.

    The burst is the number of bytes that pass at full speed after a pause: 1 ms of the rate, but at least ten packets.
    Above 200 Mbit/s it is also at least the size of a packet of segmentation offload, because cutting those costs much
    CPU time.
    """
    if rate is None:
        return "0", "0", "0"
    bits = bits_per_second(rate)
    burst = max(int(bits / 8 / 1000), 15_140 if bits <= 200e6 else 70_000)
    return f"{bits:.0f}bit", str(burst), str(_QUEUE)
