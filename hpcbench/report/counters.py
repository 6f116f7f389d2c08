"""What is to be said of a run's counters of energy: missing ones, wide ones, and too short a time."""

from collections.abc import Iterator
from math import isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.contract.text import printable

ROUGH = 0.01
"""Part of the energy by which a counter's steps may blur it before it is worth a sentence."""


def sentences(log: RunLog) -> Iterator[str]:
    """What a reader must know of a run's energy: counters with problems, too wide ones, and too short a time."""
    event = log.event(events.Energy)
    if event is None or not event.counters:
        return
    if event.scope is None or any(one.problem for one in event.counters):
        yield from (f"energy: {printable(words)}" for words in event.problems or ())
    yield from (f"energy: {printable(words)}" for words in event.wide or ())
    slowest = max((one.refresh_s or 0.0 for one in event.counters), default=0.0)
    if event.scope and event.seconds and isfinite(event.seconds) and 2 * slowest > ROUGH * event.seconds:
        part = 2 * slowest / event.seconds
        yield (
            f"energy was counted for {event.seconds:.3g} s, by counters that change every {slowest:g} s: "
            f"good to {part:.0%} at best"
        )
