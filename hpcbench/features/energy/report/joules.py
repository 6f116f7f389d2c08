"""Energy of a run, read from its log, and checks of the counters."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.contract.text import make_printable
from hpcbench.features.energy import events
from hpcbench.report.checks.relations import CheckedRun


@dataclass(frozen=True)
class StepJoules:
    """Energy consumption of the counted steps of a run."""

    scope: str
    """Hardware whose energy was summed: ``nodes``, ``GPUs and processors``, ``GPUs`` or ``processors``."""
    joules: float
    steps: int
    seconds: float
    """Total measured time in seconds."""
    parts: Mapping[str, float]
    """Joules per step, keyed by part (``node``, ``gpu``, ``processor``). Parts with missing counters are left out."""

    @property
    def per_step(self) -> float:
        """Joules per step."""
        return self.joules / self.steps

    @property
    def watts(self) -> float:
        """Mean power in watts."""
        return self.joules / self.seconds


def read_energy(log: RunLog) -> StepJoules | None:
    """Read the ``energy`` event of a log. Return None if a counter is missing."""
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
"""Maximum relative error due to the refresh period. A note is added if the error is larger."""


def check_energy(subject: CheckedRun) -> Iterator[str]:
    """Yield a note for each missing counter, each counter shared by several jobs, and each short measurement."""
    event = subject.log.event(events.Energy)
    if event is None or not event.counters:
        return
    if event.scope is None or any(counter.problem for counter in event.counters):
        yield from (f"energy: {make_printable(text)}" for text in event.problems or ())
    yield from (f"energy: {make_printable(text)}" for text in event.wide or ())
    slowest = max((counter.refresh_s or 0.0 for counter in event.counters), default=0.0)
    if event.scope and event.seconds and isfinite(event.seconds) and 2 * slowest > _ROUGH * event.seconds:
        part = 2 * slowest / event.seconds
        yield (
            f"energy was measured for {event.seconds:.3g} s with counters that change every {slowest:g} s: "
            f"the error may be {part:.0%}"
        )
