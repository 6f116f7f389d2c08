"""Operations of a pipeline stage, which the simulator runs in order."""

from typing import NamedTuple


class Compute(NamedTuple):
    """Work of the stage itself: computation, or transfers over links that no other stage uses."""

    seconds: float
    computes: float = 1.0
    """Fraction of the time that a run's log counts as computation. The rest belongs to blocking calls."""


class BlockingTransfer(NamedTuple):
    """A transfer that blocks the stage until it is complete."""

    before: float
    """Seconds before the transfer enters the network."""
    network: float
    """Seconds on the network when no other transfer shares it."""
    kind: str
    """Kind of communication to which the waiting time is added: ``tensor``, ``pipeline`` or ``data``."""


class BackgroundTransfer(NamedTuple):
    """A transfer that the stage starts without blocking. `WaitForTransfer` waits for the transfer's key."""

    key: object
    before: float
    """Seconds before the transfer enters the network."""
    network: float
    """Seconds on the network when no other transfer shares it."""
    after: float = 0.0
    """Seconds between the end of the transfer and the arrival of the message."""
    queue: str | None = None
    """Queue whose transfers run one after another, such as transfers of one group, or None for no queue."""
    driven: bool = False
    """Whether a progress thread drives the transfer and uses part of a core while the stage computes."""


class WaitForTransfer(NamedTuple):
    """A wait for the arrival of the transfer with this key."""

    key: object
    kind: str
    """Kind of communication to which the waiting time is added."""


StageOperation = Compute | BlockingTransfer | BackgroundTransfer | WaitForTransfer
"""One operation of a stage."""
