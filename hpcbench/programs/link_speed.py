"""Speed of the links between nodes, measured once for each group of a scheme with `algorithm: auto`.

A wrong guess costs more than the measurement: over links of 100 Mbit/s, plans for those of a cluster would leave to
gloo what a codec makes three times as fast.
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
"""Speeds where none is measured. A message costs tens of microseconds in Python and in gloo's threads, and more where
ranks share cores: many small slices cost more than they hide."""
GLOO_MESSAGE_S = 100e-6
"""Guessed latency of a message within gloo's own calls, which no Python delays."""
_SHARES = {Operation.ALL_REDUCE: 2, Operation.REDUCE_SCATTER: 1, Operation.ALL_GATHER: 1}
"""Number of times that a rank sends the vector, without its own part of it."""
_SIZES = [1 << k for k in range(10, 34, 4)]
_SMALL, _LARGE = 1 << 10, 1 << 20
_TRIES = 3
_TAG = 1 << 20
"""Tag that no message of a plan has."""


def measure_links(
    carrier: GlooCarrier,
    topology: Topology,
    exchange: Callable[[str], list[str]],
    clock: Callable[[], float] = time.perf_counter,
) -> Links:
    """Return the speeds of a group over several nodes: those of the slowest link, and the same on all ranks.

    Each rank sends to the next one, all at the same time. Links that are faster than the guess count as the guess:
    there, Python and the processors set the pace.

    Parameters
    ----------
    carrier
        Carrier of the group's messages.
    topology
        Nodes of the ranks.
    exchange
        Function that publishes a text of this rank and returns those of all ranks.
    clock
        Clock, in seconds.
    """
    before = (carrier.rank - 1) % carrier.size
    small, large = (min(_hop(carrier, nbytes, clock) for _ in range(_TRIES)) for nbytes in (_SMALL, _LARGE))
    far = not topology.near(carrier.rank, before)
    seconds = [float(text) for text in exchange(repr(large - small if far else 0.0))]
    fastest = GUESS.between.bytes_per_s
    speed = min(fastest, (_LARGE - _SMALL) / max(*seconds, _LARGE / fastest / 2))
    return replace(GUESS, between=replace(GUESS.between, bytes_per_s=speed))


def add_gloo_times(links: Links, ranks: int) -> Links:
    """Return the links with the expected times of gloo's own calls. They leave small calls to gloo."""
    speed = min(links.within.bytes_per_s, links.between.bytes_per_s)
    times = [
        (operation.value, size, share * (ranks - 1) * (GLOO_MESSAGE_S + size / ranks / speed))
        for operation, share in _SHARES.items()
        for size in _SIZES
    ]
    return replace(links, native=tuple(times))


def _hop(carrier: GlooCarrier, nbytes: int, clock: Callable[[], float]) -> float:
    """Return the seconds until the message of the previous rank has come and that to the next one has left."""
    content, inbox = np.zeros(nbytes, np.uint8), np.empty(nbytes, np.uint8)
    begin = clock()
    coming = carrier.receive(inbox, (carrier.rank - 1) % carrier.size, _TAG, varies=False)
    leaving = carrier.send(content, (carrier.rank + 1) % carrier.size, _TAG, varies=False)
    coming.wait()
    leaving.wait()
    return clock() - begin
