"""What a rank does while it waits for messages.

MPI libraries wait by polling at full speed. That is right where each rank owns a core, and ruinous where ranks share
cores: the one that waits takes the time of the one it waits for. The way of waiting is chosen once a run and is the
same for the MPI library's own collectives and for ours, so that schemes stay comparable.
"""

import time
from enum import Enum

_LEAST, _MOST, _SHARE = 10e-6, 150e-6, 0.5
"""Seconds of a pause, and what share of the time waited so far it may take."""


class Wait(Enum):
    """How to wait."""

    SPIN = "spin"
    """Ask again at once: least latency, one core a rank."""
    GIVE_WAY = "give way"
    """Sleep between two questions, so that ranks that share a core can work."""

    def pause(self, idle_s: float) -> None:
        """Between two questions, when nothing has moved for so long.

        To fall asleep and wake up costs time of a core, too: those who have waited for long may wait longer.
        """
        if self is Wait.GIVE_WAY:
            time.sleep(min(max(_LEAST, _SHARE * idle_s), _MOST))
