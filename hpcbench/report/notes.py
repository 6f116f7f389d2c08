"""Notes about several runs, including the steps used for their speeds."""

from collections.abc import Iterable, Sequence

from hpcbench.contract.text import make_printable
from hpcbench.report.measures import Measures
from hpcbench.report.provenance import describe_differences
from hpcbench.report.transport import note_links

UNEVEN = 0.05
"""Relative difference between mean and median step time above which a note is written."""


def list_notes(runs: Iterable[Measures]) -> list[str]:
    """List the notes about runs and about unintended differences between runs, without duplicates."""
    all_runs = list(runs)
    notes = [note for run in all_runs for note in run.notes]
    further = (
        *_note_first_lines(all_runs),
        *_note_uneven(all_runs),
        *note_links(all_runs),
        *describe_differences([run.run for run in all_runs]),
    )
    return list(dict.fromkeys([*notes, *further]))


def _note_first_lines(runs: Sequence[Measures]) -> list[str]:
    """Note that logs without a stated warm-up are evaluated without their first step line."""
    unstated = [run for run in runs if run.run.settings.work.warmup_steps is None]
    if not any(step < run.basis.first for run in unstated if run.run.log for step in run.run.log.steps):
        return []
    return [
        "if a log states no warm-up, its speed excludes the first step line: the first step compiles, and fills "
        "caches and buffers"
    ]


def _note_uneven(runs: Sequence[Measures]) -> list[str]:
    """Note large differences between mean and median step times, and name the run with the largest difference."""
    ratios = {run.run.id: run.unevenness for run in runs if run.unevenness is not None}
    uneven = {name: ratio for name, ratio in ratios.items() if not 1 - UNEVEN <= ratio <= 1 + UNEVEN}
    if not uneven:
        return []
    worst = max(uneven, key=lambda name: max(uneven[name], 1 / uneven[name]))
    return [
        f"mean and median step time differ by more than {100 * UNEVEN:.3g} % in {len(uneven)} of {len(ratios)} "
        f"runs, most in {make_printable(worst, 80)} (mean {uneven[worst]:.3g} times the median): some steps "
        "stall, or the steps alternate between two typical times; speeds use the mean"
    ]
