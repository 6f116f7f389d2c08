"""Strategies for waiting for messages.

MPI libraries wait by busy polling. Busy polling is appropriate if each rank has its own core. If ranks share cores,
polling is very slow: a waiting rank takes time from the rank that it waits for. The strategy is chosen once per run.
The same strategy is used for the MPI library's collectives and for hpcbench's own, so that schemes are comparable.
"""

import time
from enum import Enum

_LEAST, _MOST, _SHARE = 10e-6, 150e-6, 0.5
"""Minimum and maximum pause in seconds, and maximum pause as a fraction of the time waited so far."""


class Wait(Enum):
    """A wait strategy."""

    SPIN = "spin"
    """Test again immediately. Latency is lowest, but each rank needs its own core."""
    GIVE_WAY = "give way"
    """Sleep between tests, so that other ranks can use the core."""

    def pause(self, idle_s: float) -> None:
        """Pause between two tests, after `idle_s` seconds without progress.

        Sleeping and waking up also cost core time. A rank that has waited longer may therefore sleep longer.
        """
        if self is Wait.GIVE_WAY:
            time.sleep(min(max(_LEAST, _SHARE * idle_s), _MOST))
