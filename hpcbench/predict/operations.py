"""Operations of a pipeline stage, as the simulator carries them out in order."""

from typing import NamedTuple


class Compute(NamedTuple):
    """Work of the stage itself: computation, or transfers over links that only this stage uses."""

    seconds: float
    computes: float = 1.0
    """Fraction of the seconds that a run's log counts as computation; the rest belongs to blocking calls."""


class BlockingTransfer(NamedTuple):
    """A transfer that blocks the stage until it is complete."""

    before: float
    """Seconds before the transfer enters the network."""
    network: float
    """Seconds on the network when no other transfer shares it."""
    kind: str
    """Kind of communication that the waiting time is added to: ``tensor``, ``pipeline`` or ``data``."""


class BackgroundTransfer(NamedTuple):
    """A transfer that the stage starts and does not wait for; `WaitForTransfer` waits for its key."""

    key: object
    before: float
    """Seconds before the transfer enters the network."""
    network: float
    """Seconds on the network when no other transfer shares it."""
    after: float = 0.0
    """Seconds between the end of the transfer and the arrival of the message."""
    queue: str | None = None
    """Queue whose transfers are carried out one after another, such as those of one group; None for no queue."""
    driven: bool = False
    """Whether a progress thread drives the transfer and takes part of a core while the stage computes."""


class WaitForTransfer(NamedTuple):
    """A wait until the transfer with this key has arrived."""

    key: object
    kind: str
    """Kind of communication that the waiting time is added to."""


StageOperation = Compute | BlockingTransfer | BackgroundTransfer | WaitForTransfer
"""One operation of a stage."""
