"""Whether a run's log agrees with itself: each mismatch is a sentence that names the line and both figures.

Nothing is corrected and nothing averaged away: who reads the numbers is told what does not fit.
"""

from collections.abc import Callable, Iterator

from hpcbench.report.checks import course, figures, sums
from hpcbench.report.checks.subject import Subject

__all__ = ["Subject", "notes"]

CHECKS: tuple[Callable[[Subject], Iterator[str]], ...] = (
    course.resumed,
    course.binding,
    figures.rates,
    figures.ratios,
    figures.conventions,
    figures.peaks,
    figures.consumed,
    course.losses,
    sums.traffic_bytes,
    sums.wire,
    sums.waiting,
    sums.phases,
    sums.times,
    course.damage,
    course.end,
)


def notes(subject: Subject) -> Iterator[str]:
    """What a reader of the run's numbers must know, a sentence each."""
    for check in CHECKS:
        yield from check(subject)
