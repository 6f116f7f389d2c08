"""Weaknesses of a cell's verdicts: reasons for caution, and the schemes that they apply to."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import isfinite
from operator import itemgetter
from statistics import fmean
from string import ascii_lowercase

from hpcbench.contract.events import Configuration, Rank
from hpcbench.contract.times import parse_time
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.evidence import group_values, pair_runs, read_rates
from hpcbench.report.hierarchy import LEVEL
from hpcbench.report.measures import Measures
from hpcbench.report.statistics import is_usable

FEW_PAIRS = 5
"""Number of pairs below which findings largely depend on chance.

With fewer pairs, a t-test detects even a difference of several standard deviations in only half of the studies
(``benchmarks/report_statistics.py``, truth ``large``).
"""
RARE, FOUND = 0.1, 0.95
"""Fraction of failing runs, and required probability that at least one failing run is among the pairs."""
MANY_PAIRS = math.ceil(math.log(1 - FOUND) / math.log(1 - RARE))
"""Number of pairs (29) that, without a single failure, rule out the failure rate `RARE`."""
FEW_ORDERED = 5
"""Minimum number of pairs for a test of their order."""
ORDERS = 199
"""Number of random orders used to test the order of the repeats."""
FEW_STEPS = 100
"""Minimum number of counted steps. Shorter runs cover minutes at most, and training has hardly begun."""
_TENTHS = 10
"""Number of parts into which a run is divided. The last two parts are compared to detect a falling loss."""


def bound_failures(pairs: int) -> float:
    """Return the largest failure rate that `pairs` pairs without a failure cannot rule out."""
    return 1 - math.pow(1 - FOUND, 1 / pairs)


@dataclass(frozen=True)
class Weakness:
    """A reason for caution."""

    name: str
    """Machine-readable name."""
    footnote: str
    """Short text for table footnotes."""
    text: str
    """Full sentence for the notes, without a final period."""
    concerns: Callable[[Cell, SchemeRow, SchemeRow], bool]
    """Function that returns whether the reason applies, given a cell, a scheme's row and the baseline's row."""


@dataclass(frozen=True)
class Weakened:
    """Weaknesses of a cell, each with a letter."""

    reasons: tuple[tuple[str, Weakness], ...]
    of: Mapping[str, tuple[str, ...]]
    """Letters by scheme."""

    def mark(self, scheme: str) -> str:
        """Return the letters next to a verdict, such as ``[ab]``, or an empty string if there are no weaknesses."""
        letters = "".join(self.of.get(scheme, ()))
        return f"[{letters}]" if letters else ""

    def names(self, scheme: str) -> list[str]:
        """Return the machine-readable names of a scheme's weaknesses."""
        return [weakness.name for letter, weakness in self.reasons if letter in self.of.get(scheme, ())]

    def has(self, scheme: str, weakness: Weakness) -> bool:
        """Return whether a scheme's verdict has a weakness."""
        return weakness.name in self.names(scheme)

    @property
    def legend(self) -> str:
        """Footnote that explains the letters."""
        return ", ".join(f"[{letter}] {weakness.footnote}" for letter, weakness in self.reasons)

    @property
    def sentences(self) -> list[str]:
        """Sentences about the weaknesses, with their letters."""
        return [f"[{letter}] {weakness.text}." for letter, weakness in self.reasons]


def find_weaknesses(cell: Cell) -> Weakened:
    """Return the weaknesses of a cell's verdicts, including weaknesses of the baseline."""
    (alone,) = find_common_weaknesses([cell])
    return alone


def find_common_weaknesses(cells: Sequence[Cell]) -> list[Weakened]:
    """Return the weaknesses of each cell, with consistent letters in all cells."""
    concerned = [_find_concerned(cell) for cell in cells]
    present = [
        weakness for weakness in WEAKNESSES if any(weakness.name in names for of in concerned for names in of.values())
    ]
    reasons = tuple(zip(ascii_lowercase, present, strict=False))
    return [
        Weakened(
            reasons,
            {scheme: tuple(a for a, weakness in reasons if weakness.name in names) for scheme, names in of.items()},
        )
        for of in concerned
    ]


def _find_concerned(cell: Cell) -> dict[str, set[str]]:
    """Return the names of the weaknesses of each compared scheme."""
    base = cell.row(cell.baseline)
    if base is None:
        return {}
    rows = [row for row in cell.rows if row.compared and row is not base]
    return {
        row.scheme: {weakness.name for weakness in WEAKNESSES if weakness.concerns(cell, row, base)} for row in rows
    }


def _has_rare_failures(cell: Cell, row: SchemeRow, base: SchemeRow) -> bool:
    """Return whether a loss is no worse, but there are too few pairs to rule out rare failures.

    If all pairs have identical losses, the scheme changed nothing, and no variation could hide a failure.
    """
    loss = row.loss
    if loss is None or row.loss_shown != "no worse" or loss.pairs >= MANY_PAIRS:
        return False
    return not loss.worst == loss.estimate == 0


def _has_correlated_repeats(cell: Cell, row: SchemeRow, base: SchemeRow) -> bool:
    values = group_values({row.scheme: pair_runs(row.runs, base.runs)}, read_rates).get(row.scheme, [])
    return follow_each_other([math.log(mine / other) for mine, other in values])


def follow_each_other(values: Sequence[float]) -> bool:
    """Return whether successive values are more similar than in 19 of 20 random orders.

    The statistic is the sum of squared differences of neighbors (von Neumann, Annals of Mathematical Statistics 12,
    1941). Comparison with random orders of the same values avoids assumptions about the distribution.
    """
    if len(values) < FEW_ORDERED:
        return False

    def apart(order: Sequence[float]) -> float:
        return math.fsum((b - a) ** 2 for a, b in pairwise(order))

    rng, seen = random.Random(len(values)), apart(values)
    as_near = sum(apart(rng.sample(values, len(values))) <= seen for _ in range(ORDERS))
    return (1 + as_near) / (1 + ORDERS) <= LEVEL


def _is_still_falling(cell: Cell, row: SchemeRow, base: SchemeRow) -> bool:
    """Return whether the baseline's training loss fell by more than the margin in the last tenth of the steps."""
    falls = [fall for run in base.counted if (fall := _compute_fall(run)) is not None]
    return row.loss is not None and bool(falls) and fmean(falls) > cell.criteria.loss_margin


def _compute_fall(run: Measures) -> float | None:
    """Return the relative decrease in loss from the ninth to the last tenth of the steps."""
    losses = run.run.log.steps.column("loss") if run.run.log else []
    size = len(losses) // _TENTHS
    before, last = losses[-2 * size : -size], losses[-size:]
    if not size or not all(map(is_usable, (*before, *last))) or not fmean(before) > 0:
        return None
    return 1 - fmean(last) / fmean(before)


def _shares_cores(run: Measures) -> bool:
    """Return whether ranks shared cores.

    If the cores of the ranks are unknown, the run's settings determine the result.
    """
    world = run.run.log.ranks if run.run.log else ()
    threads: Counter[str | None] = Counter()
    cores: dict[str | None, set[int]] = {}
    for rank in world:
        if rank.cores is None:
            return run.run.settings.oversubscribe
        machine = _find_machine(run, rank)
        threads[machine] += rank.threads or 1
        cores.setdefault(machine, set()).update(rank.cores)
    if not world:
        return run.run.settings.oversubscribe
    return any(count > len(cores[machine]) for machine, count in threads.items())


_VIRTUAL_HOSTS = "virtual-hosts"
"""Site whose hosts are all on one machine. Older logs do not record machines, so the site's name is used instead."""


def _find_machine(run: Measures, rank: Rank) -> str | None:
    """Return the physical machine that a rank runs on. Several virtual hosts may share a machine."""
    if rank.machine is None and run.run.settings.site == _VIRTUAL_HOSTS:
        return _VIRTUAL_HOSTS
    return rank.machine or rank.host


def _has_other_jobs(cell: Cell, row: SchemeRow, base: SchemeRow) -> bool:
    """Return whether runs of two jobs shared a node at the same time, according to the jobs' status files."""
    used = {id(run) for run in _list_used(row, base)}
    spans: dict[str, list[tuple[datetime, datetime, str | None, bool]]] = {}
    for run in cell.runs:
        start, end = parse_time(run.run.start), parse_time(run.run.end)
        if start is None or end is None:
            continue
        for host in _list_hosts(run):
            spans.setdefault(host, []).append((start, end, run.run.job, id(run) in used))
    return any(_has_overlap(sorted(runs_on_host, key=itemgetter(0))) for runs_on_host in spans.values())


def _has_overlap(spans: Sequence[tuple[datetime, datetime, str | None, bool]]) -> bool:
    """Return whether spans of different jobs overlap. At least one span must belong to a compared run.

    The spans are sorted by start.
    """
    under_way: list[tuple[datetime, datetime, str | None, bool]] = []
    for span in spans:
        start, _, job, used = span
        under_way = [other for other in under_way if other[1] > start]
        if any(other[2] != job and (used or other[3]) for other in under_way):
            return True
        under_way.append(span)
    return False


def _list_hosts(run: Measures) -> set[str]:
    named = {rank.host for rank in run.run.log.ranks if rank.host} if run.run.log else set()
    return named or {host for host in [run.run.host] if host}


def _has_learnt_nothing(cell: Cell, row: SchemeRow, base: SchemeRow) -> bool:
    bounds = [bound for run in _list_used(row, base) if (bound := _read_unigram_loss(run)) is not None]
    losses = [scheme_row.loss_valid for scheme_row in (row, base) if scheme_row.loss_valid is not None]
    return row.loss is not None and bool(bounds) and any(loss >= min(bounds) for loss in losses)


def _read_unigram_loss(run: Measures) -> float | None:
    bound = run.run.log.read_event(Configuration).valid_loss_unigram if run.run.log else None
    return bound if bound is not None and isfinite(bound) else None


def _list_used(row: SchemeRow, base: SchemeRow) -> Sequence[Measures]:
    return [run for pair in pair_runs(row.runs, base.runs) for run in pair]


LEARNT_NOTHING = Weakness(
    "learnt_nothing",
    "the model has learned nothing yet",
    "The validation loss of the scheme or of the baseline is no better than that of a model that has learned "
    "only how often each byte occurs: such a model has no accuracy to lose, so a loss that is no worse means "
    "nothing",
    _has_learnt_nothing,
)
RARE_FAILURES = Weakness(
    "rare_failures",
    "too few pairs to rule out rare failures",
    f"Too few pairs to rule out rare failures: one run in {1 / RARE:.0f} may train to a worse loss; {MANY_PAIRS} pairs "
    f"would reveal this with a probability of {100 * FOUND:.0f} %",
    _has_rare_failures,
)
WEAKNESSES = (
    Weakness(
        "few_pairs",
        f"fewer than {FEW_PAIRS} pairs of runs",
        f"Fewer than {FEW_PAIRS} pairs of runs: findings depend largely on chance",
        lambda _, row, base: row.speed is not None and row.speed.pairs < FEW_PAIRS,
    ),
    Weakness(
        "few_steps",
        f"fewer than {FEW_STEPS} counted steps",
        f"Fewer than {FEW_STEPS} counted steps in a run: too few to time a step, and training has hardly begun",
        lambda _, row, base: any(0 < run.steps < FEW_STEPS for run in _list_used(row, base)),
    ),
    Weakness(
        "still_falling",
        "the loss still falls",
        "The baseline's training loss still fell by more than the margin in the last tenth of the steps: losses that"
        " are no worse here may differ later",
        _is_still_falling,
    ),
    Weakness(
        "shared_cores",
        "ranks shared cores",
        "Ranks shared cores and took turns: the codec of one rank delays the computation of another",
        lambda _, row, base: any(map(_shares_cores, _list_used(row, base))),
    ),
    Weakness(
        "other_jobs",
        "other jobs on the same nodes",
        "Runs of different jobs of this comparison ran on the same node at the same time and slowed each other down",
        _has_other_jobs,
    ),
    LEARNT_NOTHING,
    Weakness(
        "other_steps",
        "runs of a pair counted different steps",
        "Runs of a pair counted different steps: their speeds use the steps that both counted, but their last "
        "losses belong to different steps",
        lambda _, row, base: any(a.counted_steps != b.counted_steps for a, b in pair_runs(row.runs, base.runs)),
    ),
    Weakness(
        "partly_coded",
        "only some bytes were encoded",
        "Only some of the bytes for which the scheme has a codec were encoded (see column coded)",
        lambda _, row, base: isinstance(row.coded_part, float) and row.coded_part < 1,
    ),
    RARE_FAILURES,
    Weakness(
        "correlated_repeats",
        "successive repeats resemble each other",
        "Speed ratios of successive repeats resemble each other: pairs are not independent, so findings are less "
        "certain",
        _has_correlated_repeats,
    ),
)
"""All weaknesses, in the order of their letters."""
