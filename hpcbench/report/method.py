"""Sentences about the method: pairs, tests, margins, and outlier nodes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeGuard

from hpcbench.contract.events import Configuration
from hpcbench.contract.text import make_printable
from hpcbench.report import sentences as say
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.evidence import pair_runs
from hpcbench.report.hierarchy import LEVEL
from hpcbench.report.looks import LOOKS
from hpcbench.report.measures import Measures, select_completed
from hpcbench.report.pace import choose_rate
from hpcbench.report.statistics import CONFIDENCE, is_usable
from hpcbench.report.verdicts import NOT_FASTER, WORSE_SLOWER

FEWEST = 4
"""Minimum number of values for outlier detection. Among three values, one is often far from the others by chance."""
_SIGMA = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""


def compute_robust_deviations(values: Sequence[float]) -> list[float]:
    """Return the distance of each value from the median, in robust standard deviations.

    The scale is the median absolute deviation, which is insensitive to single outliers. For fewer than `FEWEST` values,
    all distances are 0. If more than half of the values are equal, the distance of any other value is infinite.
    """
    if len(values) < FEWEST:
        return [0.0] * len(values)
    middle = median(values)
    scale = _SIGMA * median(abs(value - middle) for value in values)
    if scale == 0:
        return [0.0 if value == middle else float("inf") if value > middle else float("-inf") for value in values]
    return [(value - middle) / scale for value in values]


FAR = 3.5
"""Outlier threshold in robust standard deviations (Iglewicz and Hoaglin, How to detect outliers, 1993)."""
MATTERS = 0.03
"""Minimum relative difference of an outlier from the median.

If nodes agree within 0.1 %, a difference of 0.1 % may be statistically large but is irrelevant.
"""
_TWICE = 2


@dataclass(frozen=True)
class SlowHost:
    """A node that took longer for the same work than other nodes in the same runs."""

    name: str
    excess: float
    """Extra time relative to the median node of a run, as the median over the runs in which this node was slow."""
    slow: int
    """Number of runs in which the node was slow."""
    runs: int
    """Number of runs on the node, excluding runs with too few nodes."""


def list_slow_hosts(runs: Sequence[Measures]) -> list[SlowHost]:
    """List the nodes that were slow at least twice or in all their runs, the slowest first.

    Computing times are compared between ranks with the same work. Waiting for messages is excluded, because otherwise a
    single slow node would make all others look slow.
    """
    seen: dict[str, list[float]] = {}
    for run in runs:
        hosts = {host.host: host.over_peers for host in run.hosts if _is_positive(host.over_peers)}
        if len(hosts) < FEWEST:
            continue
        middle = median(hosts.values())
        for name, far in zip(hosts, compute_robust_deviations(list(hosts.values())), strict=True):
            excess = hosts[name] / middle - 1
            seen.setdefault(name, []).append(excess if far > FAR and excess >= MATTERS else 0.0)
    slow_hosts = []
    for name, excesses in seen.items():
        slow = [excess for excess in excesses if excess]
        if slow and len(slow) >= min(_TWICE, len(excesses)):
            slow_hosts.append(SlowHost(name, median(slow), len(slow), len(excesses)))
    return sorted(slow_hosts, key=lambda host: (-host.excess, host.name))


def list_odd_baselines(base: Sequence[Measures]) -> list[tuple[str, float]]:
    """List the pairings whose baseline is an outlier, and the speed of each such baseline relative to the median.

    Such a pair still compares two runs in the same allocation, but its result may differ from the results of other
    pairs.
    """
    completed = select_completed(base)
    rate = choose_rate([run.rates for run in completed])
    speeds = {make_printable(run.run.pairing, 40): speed for run in completed if _is_positive(speed := run.rates[rate])}
    far = compute_robust_deviations([math.log(speed) for speed in speeds.values()])
    middle = median(speeds.values()) if speeds else 0.0
    ratios = {pairing: speed / middle for pairing, speed in speeds.items()}
    return [
        (pairing, ratio)
        for (pairing, ratio), distance in zip(ratios.items(), far, strict=True)
        if abs(distance) > FAR and abs(ratio - 1) >= MATTERS
    ]


def _is_positive(value: float | None) -> TypeGuard[float]:
    return value is not None and value > 0 and is_usable(value)


def describe_method(cell: Cell, base: SchemeRow) -> list[str]:
    """Describe the method and the environment of a cell's runs."""
    lines = [*_describe_pooling(cell), *_describe_pairs(cell)]
    criteria = cell.criteria
    slow = [row for row in cell.rows if row.outcome in (NOT_FASTER, WORSE_SLOWER)]
    if any(row.speed and not row.speed.slower for row in slow):
        lines.append(say.MARGIN_OF_SPEED.format(margin=100 * criteria.speed_margin))
    margin = next((row.loss_margin for row in cell.rows if row.loss_margin is not None), None)
    if margin is not None:
        lines.append(say.MARGIN_OF_LOSS.format(difference=margin, margin=100 * criteria.loss_margin))
    log = next((measures.run.log for measures in base.runs if measures.run.log), None)
    configuration = log.read_event(Configuration) if log else Configuration.read({})
    uniform, unigram = configuration.valid_loss_uniform, configuration.valid_loss_unigram
    if uniform is not None and unigram is not None:
        lines.append(say.SCALE_OF_LOSS.format(uniform=uniform, unigram=unigram))
    for host in list_slow_hosts(cell.runs):
        lines.append(say.SLOW_NODE.format(**{**vars(host), "excess": 100 * host.excess}))
    return [*lines, *(say.ODD_BASELINE.format(pairing=a, ratio=b) for a, b in list_odd_baselines(base.runs))]


def _describe_pooling(cell: Cell) -> list[str]:
    labels = list(dict.fromkeys(measures.run.submission for measures in cell.runs))
    return [say.POOLED.format(count=len(labels), submissions=", ".join(labels))] if len(labels) > 1 else []


def _describe_pairs(cell: Cell) -> list[str]:
    """Describe the pairs, the intervals, and the significance level of the findings."""
    findings = [row.speed for row in cell.rows if row.speed]
    if not findings:
        return []
    counts = sorted({finding.pairs for finding in findings})
    pairs = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    has_tests = any(finding.equal for finding in findings)
    intervals = say.INTERVALS.format(confidence=100 * CONFIDENCE) if has_tests else say.NO_INTERVALS
    are_logs = any(measures.run.given for measures in cell.runs)
    sentence = say.PAIRS_OF_LOGS if are_logs else say.PAIRS_OF_RUNS
    looks = f"{', '.join(map(str, LOOKS[:-1]))} or {LOOKS[-1]}"
    level = [say.LEVEL_OF_REPORT.format(level=100 * LEVEL, looks=looks)] if has_tests else []
    return [sentence.format(pairs=pairs, where=_describe_allocations(cell), intervals=intervals), *level]


def _describe_allocations(cell: Cell) -> str:
    """Describe whether the runs of a pair used the same nodes."""
    base = cell.row(cell.baseline)
    others = [row for row in cell.rows if row is not base and row.speed]
    pairs = [pair for row in others for pair in pair_runs(row.runs, base.runs)] if base else []
    apart = sum(mine.run.allocation != other.run.allocation for mine, other in pairs)
    if not apart:
        return say.SAME_ALLOCATION
    return say.OWN_ALLOCATIONS if apart == len(pairs) else say.SOME_ALLOCATIONS.format(apart=apart, pairs=len(pairs))
