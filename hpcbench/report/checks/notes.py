"""Consistency checks of a run's log. A note about a mismatch states the line and both values.

The checks do not correct values.
"""

from collections.abc import Callable, Iterator

from hpcbench.features.energy.report import joules
from hpcbench.features.network.report import sent
from hpcbench.report.checks import events, figures
from hpcbench.report.checks.relations import CheckedRun

CHECKS: tuple[Callable[[CheckedRun], Iterator[str]], ...] = (
    events.note_resumption,
    events.note_binding,
    figures.check_rates,
    figures.check_ratios,
    figures.check_conventions,
    figures.check_peaks,
    figures.check_consumed,
    events.check_losses,
    events.check_traffic_bytes,
    events.check_wire,
    events.check_waiting,
    events.check_phases,
    events.check_times,
    joules.check_energy,
    sent.check,
    events.note_groups,
    events.check_damage,
    events.check_end,
)


def list_run_notes(subject: CheckedRun) -> Iterator[str]:
    """Yield notes about a run, one sentence each."""
    for check in CHECKS:
        yield from check(subject)
