"""What a stage of the simulation does, one thing after another."""

from typing import NamedTuple


class Busy(NamedTuple):
    """The stage computes, or uses links of its own."""

    seconds: float
    computes: float = 1.0
    """Part of it that a log would call computing: the rest is of calls that are waited for."""


class Flow(NamedTuple):
    """The stage waits for something of its own to cross the network, alone so many seconds."""

    before: float
    network: float
    kind: str


class Post(NamedTuple):
    """Something goes its way in the background.

    After `before` seconds, and after the last one of its queue, it crosses the network. `Wait` waits for its key;
    `after` more seconds pass before it is there.
    """

    key: object
    before: float
    network: float
    after: float = 0.0
    queue: str | None = None
    """One after another, for what a stage sends over one group."""
    driven: bool = False
    """A thread drives it while the stage computes, and wakes up again and again to look."""


class Wait(NamedTuple):
    """Until what has the key is there."""

    key: object
    kind: str


Operation = Busy | Flow | Post | Wait
