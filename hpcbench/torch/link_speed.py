"""How fast the links between nodes are, measured once for a group whose scheme leaves the choice to us.

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
from hpcbench.torch.gloo_carrier import GlooCarrier

GUESS = Links(Link(500e-6, 1e9), Link(500e-6, 1e9), typical=Speed(4e9, 4e9, 50e-6, 0.5))
"""Speeds where nothing is measured. A message costs tens of microseconds, in Python and in gloo's threads, and more
where ranks share cores: many small slices cost more than what they hide."""
GLOO_MESSAGE_S = 100e-6
"""Latency of a message within gloo's own calls, which no Python delays; a guess, too."""
_SHARES = {Operation.ALL_REDUCE: 2, Operation.REDUCE_SCATTER: 1, Operation.ALL_GATHER: 1}
"""How often a rank sends the vector, but for its own part of it."""
_SIZES = [1 << k for k in range(10, 34, 4)]
_SMALL, _LARGE = 1 << 10, 1 << 20
_TRIES = 3
_TAG = 1 << 20
"""No message of a plan has it."""


def measured(
    carrier: GlooCarrier,
    topology: Topology,
    told: Callable[[str], list[str]],
    clock: Callable[[], float] = time.perf_counter,
) -> Links:
    """The speeds of a group over several nodes: those of the slowest link, and the same on all ranks.

    Each rank sends to the next one, and all at once. Links that are faster than the guess count as the guess: there,
    Python and the processors set the pace.

    Parameters
    ----------
    carrier
        Carries the messages.
    topology
        The nodes of the ranks.
    told
        Tells all ranks a text, and gives back what each of them has told.
    clock
        Gives seconds.
    """
    before = (carrier.rank - 1) % carrier.size
    small, large = (min(_hop(carrier, nbytes, clock) for _ in range(_TRIES)) for nbytes in (_SMALL, _LARGE))
    far = not topology.near(carrier.rank, before)
    said = [float(text) for text in told(repr(large - small if far else 0.0))]
    fastest = GUESS.between.bytes_per_s
    speed = min(fastest, (_LARGE - _SMALL) / max(*said, _LARGE / fastest / 2))
    return replace(GUESS, between=replace(GUESS.between, bytes_per_s=speed))


def with_gloo(links: Links, ranks: int) -> Links:
    """The same with the expected times of gloo's own calls, so that it keeps small ones, where Python counts."""
    speed = min(links.within.bytes_per_s, links.between.bytes_per_s)
    times = [
        (operation.value, size, share * (ranks - 1) * (GLOO_MESSAGE_S + size / ranks / speed))
        for operation, share in _SHARES.items()
        for size in _SIZES
    ]
    return replace(links, native=tuple(times))


def _hop(carrier: GlooCarrier, nbytes: int, clock: Callable[[], float]) -> float:
    """Seconds until the message of the rank before this one has come, and that to the next one has left."""
    content, inbox = np.zeros(nbytes, np.uint8), np.empty(nbytes, np.uint8)
    begin = clock()
    coming = carrier.receive(inbox, (carrier.rank - 1) % carrier.size, _TAG, varies=False)
    leaving = carrier.send(content, (carrier.rank + 1) % carrier.size, _TAG, varies=False)
    coming.wait()
    leaving.wait()
    return clock() - begin
