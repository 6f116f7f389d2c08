"""Joules of a run, from its log, and what is wrong with them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.contract.text import make_printable
from hpcbench.features.energy import events
from hpcbench.report.checks.relations import CheckedRun


@dataclass(frozen=True)
class StepJoules:
    """Joules of the steps that count."""

    scope: str
    """What they are of: nodes, GPUs and processors, GPUs, or processors."""
    joules: float
    steps: int
    seconds: float
    """For which counters ran."""
    parts: Mapping[str, float]
    """Joules a step of ``node``, ``gpu`` and ``processor``, of which they are known."""

    @property
    def per_step(self) -> float:
        """Joules of a step."""
        return self.joules / self.steps

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds


def energy(log: RunLog) -> StepJoules | None:
    """Return the joules of the ``energy`` event; None if there is no whole sum."""
    event = log.read_event(events.Energy)
    if event.scope is None or event.from_step is None or event.to_step is None:
        return None
    joules, seconds, steps = event.joules, event.seconds, event.to_step - event.from_step + 1
    if joules is None or seconds is None or not (0 < joules < inf and 0 < seconds < inf and steps > 0):
        return None
    sums = {"node": event.node_joules, "gpu": event.gpu_joules, "processor": event.processor_joules}
    parts = {name: value / steps for name, value in sums.items() if value is not None and isfinite(value)}
    return StepJoules(make_printable(event.scope, 40), joules, steps, seconds, parts)


_ROUGH = 0.01
"""Part of the energy by which a counter's steps may blur it before it is worth a sentence."""


def check(subject: CheckedRun) -> Iterator[str]:
    """Yield a note for each problem of the counters: missing, too wide, or read for too short a time."""
    event = subject.log.event(events.Energy)
    if event is None or not event.counters:
        return
    if event.scope is None or any(one.problem for one in event.counters):
        yield from (f"energy: {make_printable(words)}" for words in event.problems or ())
    yield from (f"energy: {make_printable(words)}" for words in event.wide or ())
    slowest = max((one.refresh_s or 0.0 for one in event.counters), default=0.0)
    if event.scope and event.seconds and isfinite(event.seconds) and 2 * slowest > _ROUGH * event.seconds:
        part = 2 * slowest / event.seconds
        yield (
            f"energy was counted for {event.seconds:.3g} s, by counters that change every {slowest:g} s: "
            f"good to {part:.0%} at best"
        )
