"""Checks that a run's log agrees with itself. Each mismatch is a sentence that names the line and both figures.

Nothing is corrected: the notes report the values that do not match.
"""

from collections.abc import Callable, Iterator

from hpcbench.features.energy.report import joules
from hpcbench.features.network.report import sent
from hpcbench.report.checks import events, figures
from hpcbench.report.checks.relations import CheckedRun

CHECKS: tuple[Callable[[CheckedRun], Iterator[str]], ...] = (
    events.resumed,
    events.binding,
    figures.rates,
    figures.ratios,
    figures.conventions,
    figures.peaks,
    figures.consumed,
    events.losses,
    events.traffic_bytes,
    events.wire,
    events.waiting,
    events.phases,
    events.times,
    joules.check,
    sent.check,
    events.groups,
    events.damage,
    events.end,
)


def notes(subject: CheckedRun) -> Iterator[str]:
    """Yield the notes about a run, one sentence each."""
    for check in CHECKS:
        yield from check(subject)
