"""The way in which a rank waits for messages.

MPI libraries wait by polling at full speed. That is right if each rank owns a core. If ranks share cores it is very
slow, because a rank that waits takes the time of the rank that it waits for. The way of waiting is chosen once for a
run. It is the same for the MPI library's own collectives and for hpcbench's, so that schemes stay comparable.
"""

import time
from enum import Enum

_LEAST, _MOST, _SHARE = 10e-6, 150e-6, 0.5
"""Shortest and longest pause in seconds, and the fraction of the time waited so far that a pause may take."""


class Wait(Enum):
    """A way of waiting."""

    SPIN = "spin"
    """Test again at once: lowest latency, one core per rank."""
    GIVE_WAY = "give way"
    """Sleep between two tests, so that ranks that share a core can work."""

    def pause(self, idle_s: float) -> None:
        """Pause between two tests, after `idle_s` seconds without progress.

        Falling asleep and waking up cost time of a core, too. So a rank that has waited for long may sleep longer.
        """
        if self is Wait.GIVE_WAY:
            time.sleep(min(max(_LEAST, _SHARE * idle_s), _MOST))
