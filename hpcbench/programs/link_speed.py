"""Speed of links between nodes, measured once per group for schemes with `algorithm: auto`.

Plans that are based on wrong speeds cost more time than the measurement. With assumed cluster speeds on links of 100
Mbit/s, plans would leave calls to gloo although a codec makes these calls three times as fast.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hpcbench.comm.links import Link, Links, Speed
from hpcbench.comm.plan import Operation
from hpcbench.comm.topology import Topology
from hpcbench.programs.gloo_carrier import GlooCarrier

GUESS = Links(Link(500e-6, 1e9), Link(500e-6, 1e9), typical=Speed(4e9, 4e9, 50e-6, 0.5))
"""Speeds that are assumed if they were not measured.

A message takes tens of microseconds in Python and in gloo's threads, and more if ranks share cores. Therefore, many
small slices cost more time than they hide.
"""
GLOO_MESSAGE_S = 100e-6
"""Assumed latency of a message within gloo's own calls, which do not involve Python."""
_SHARES = {Operation.ALL_REDUCE: 2, Operation.REDUCE_SCATTER: 1, Operation.ALL_GATHER: 1}
"""Number of times that a rank sends all parts of the vector except its own, keyed by operation."""
_SIZES = [1 << k for k in range(10, 34, 4)]
_SMALL, _LARGE = 1 << 10, 1 << 20
_TRIES = 3
_TAG = 1 << 20
"""Message tag that no plan uses."""


def measure_links(
    carrier: GlooCarrier,
    topology: Topology,
    exchange: Callable[[str], list[str]],
    clock: Callable[[], float] = time.perf_counter,
) -> Links:
    """Measure the link speeds of a group that spans several nodes. All ranks return the speeds of the slowest link.

    All ranks send to their next rank at the same time. Measured speeds are capped at the assumed speeds. At higher
    speeds, Python and the processors are the bottleneck.

    Parameters
    ----------
    carrier
        Carrier of the group's messages.
    topology
        Node of each rank.
    exchange
        Function that publishes a string of this rank and returns the strings of all ranks.
    clock
        Function that returns the time in seconds.
    """
    before = (carrier.rank - 1) % carrier.size
    small, large = (min(_hop(carrier, nbytes, clock) for _ in range(_TRIES)) for nbytes in (_SMALL, _LARGE))
    far = not topology.near(carrier.rank, before)
    seconds = [float(text) for text in exchange(repr(large - small if far else 0.0))]
    fastest = GUESS.between.bytes_per_s
    speed = min(fastest, (_LARGE - _SMALL) / max(*seconds, _LARGE / fastest / 2))
    return replace(GUESS, between=replace(GUESS.between, bytes_per_s=speed))


def add_gloo_times(links: Links, ranks: int) -> Links:
    """Add the expected times of gloo's own calls, so that plans leave small calls to gloo."""
    speed = min(links.within.bytes_per_s, links.between.bytes_per_s)
    times = [
        (operation.value, size, share * (ranks - 1) * (GLOO_MESSAGE_S + size / ranks / speed))
        for operation, share in _SHARES.items()
        for size in _SIZES
    ]
    return replace(links, native=tuple(times))


def _hop(carrier: GlooCarrier, nbytes: int, clock: Callable[[], float]) -> float:
    """Return the time in seconds to receive a message from the previous rank and send a message to the next rank."""
    content, inbox = np.zeros(nbytes, np.uint8), np.empty(nbytes, np.uint8)
    begin = clock()
    coming = carrier.receive(inbox, (carrier.rank - 1) % carrier.size, _TAG, varies=False)
    leaving = carrier.send(content, (carrier.rank + 1) % carrier.size, _TAG, varies=False)
    coming.wait()
    leaving.wait()
    return clock() - begin
