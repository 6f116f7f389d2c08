"""What a rank does while it waits for messages.

MPI libraries wait by polling at full speed. That is right where each rank owns a core, and ruinous where ranks share
cores: the one that waits takes the time of the one it waits for. The way of waiting is chosen once a run and is the
same for the MPI library's own collectives and for ours, so that schemes stay comparable.
"""

import time
from enum import Enum


class Wait(Enum):
    """How to wait."""

    SPIN = "spin"
    """Ask again at once: least latency, one core a rank."""
    GIVE_WAY = "give way"
    """Sleep between two questions, so that ranks that share a core can work."""

    def pause(self, turn: int) -> None:
        """Between two questions, the `turn`-th (from 0) since something last moved."""
        if self is Wait.GIVE_WAY:
            time.sleep(min(turn * 10e-6, 200e-6))
