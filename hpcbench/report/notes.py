"""Notes about several runs: those of each, and about the steps that their speeds rest on."""

from collections.abc import Iterable, Sequence

from hpcbench.contract.text import make_printable
from hpcbench.report.basis import stated_warmup
from hpcbench.report.measures import Measures
from hpcbench.report.provenance import differences

UNEVEN = 0.05
"""Part by which mean and median step time may differ without a note."""


def all_notes(runs: Iterable[Measures]) -> list[str]:
    """Return notes about the runs, each once, and about differences between them other than the compared ones."""
    every = list(runs)
    notes = [note for run in every for note in run.notes]
    return list(
        dict.fromkeys([*notes, *_first_lines(every), *_uneven(every), *differences([run.run for run in every])])
    )


def _first_lines(runs: Sequence[Measures]) -> list[str]:
    """Whether the first step line of logs is left out, because nothing states their warm-up."""
    if any(
        run.run.log and stated_warmup(run.run) is None and any(step < run.first for step in run.run.log.steps)
        for run in runs
    ):
        return [
            "the first step line of a log that states no warm-up does not count for its speed: that step compiles, and"
            " fills caches and buffers"
        ]
    return []


def _uneven(runs: Sequence[Measures]) -> list[str]:
    """Whether mean and median step time differ, and of which run they differ the most."""
    ratios = {run.run.id: run.unevenness for run in runs if run.unevenness is not None}
    uneven = {name: ratio for name, ratio in ratios.items() if not 1 - UNEVEN <= ratio <= 1 + UNEVEN}
    if not uneven:
        return []
    worst = max(uneven, key=lambda name: max(uneven[name], 1 / uneven[name]))
    return [
        f"mean and median step time differ by more than {100 * UNEVEN:.3g} % in {len(uneven)} of {len(ratios)} runs,"
        f" most in {make_printable(worst, 80)} (mean {uneven[worst]:.3g} times the median): some steps stall, or steps "
        "take one of two times; speeds rest on the mean"
    ]
