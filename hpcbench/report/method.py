"""Sentences about the method: pairs, tests, margins, and nodes that were unlike the others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeGuard

from hpcbench.contract.events import Configuration
from hpcbench.contract.scheme import format_assignments
from hpcbench.contract.text import make_printable
from hpcbench.report.compare import Cell, Row
from hpcbench.report.evidence import paired
from hpcbench.report.hierarchy import LEVEL
from hpcbench.report.looks import LOOKS
from hpcbench.report.measures import Measures
from hpcbench.report.statistics import CONFIDENCE, usable
from hpcbench.report.verdicts import NOT_FASTER, WORSE_SLOWER

FEWEST = 4
"""Fewest values that can have an outlier. One of three is often far away by chance."""
_SIGMA = 1.4826
"""The factor from the median absolute deviation to the standard deviation of a normal distribution."""


def robust_deviations(values: Sequence[float]) -> list[float]:
    """Distance of each value from the median, in standard deviations if most values are normally distributed.

    The scale is the median absolute deviation, which one outlier does not change much. Fewer than `FEWEST` values have
    no outlier, and all distances are 0. If more than half of the values are equal, any other value is infinitely far.
    """
    if len(values) < FEWEST:
        return [0.0] * len(values)
    middle = median(values)
    scale = _SIGMA * median(abs(value - middle) for value in values)
    if scale == 0:
        return [0.0 if value == middle else float("inf") if value > middle else float("-inf") for value in values]
    return [(value - middle) / scale for value in values]


FAR = 3.5
"""Robust deviations beyond which a value is an outlier (Iglewicz and Hoaglin, How to detect outliers, 1993)."""
MATTERS = 0.03
"""Part by which an outlier must also differ.

Among nodes that agree to a thousandth, a thousandth is far but does not matter.
"""
_TWICE = 2


@dataclass(frozen=True)
class SlowHost:
    """A node that took longer than the other nodes of its runs for the same work."""

    name: str
    excess: float
    """Part by which it took longer than the median of a run's nodes: the median over the runs in which it was slow."""
    slow: int
    """Number of runs in which it was slow."""
    runs: int
    """Number of runs that it was in, of those with enough nodes."""


def slow_hosts(runs: Sequence[Measures]) -> list[SlowHost]:
    """Nodes that were slow twice, or whenever they were used; the slowest first.

    Computing time is compared with that of ranks with the same work. Waiting for messages does not count, or one slow
    node would make all others look slow.
    """
    seen: dict[str, list[float]] = {}
    for run in runs:
        hosts = {host.host: host.over_peers for host in run.hosts if _positive(host.over_peers)}
        if len(hosts) < FEWEST:
            continue
        middle = median(hosts.values())
        for name, far in zip(hosts, robust_deviations(list(hosts.values())), strict=True):
            excess = hosts[name] / middle - 1
            seen.setdefault(name, []).append(excess if far > FAR and excess >= MATTERS else 0.0)
    found = []
    for name, excesses in seen.items():
        slow = [excess for excess in excesses if excess]
        if slow and len(slow) >= min(_TWICE, len(excesses)):
            found.append(SlowHost(name, median(slow), len(slow), len(excesses)))
    return sorted(found, key=lambda host: (-host.excess, host.name))


def odd_baselines(base: Sequence[Measures]) -> list[tuple[str, float]]:
    """Pairings whose baseline was far from the other baselines, with its speed over the median of all.

    Such a pair still compares two runs of one allocation, but may not show the same as the others.
    """
    speeds = {
        make_printable(run.run.pairing, 40): run.samples_per_s
        for run in base
        if run.run.state == "completed" and _positive(run.samples_per_s)
    }
    far = robust_deviations([math.log(speed) for speed in speeds.values()])
    middle = median(speeds.values()) if speeds else 0.0
    ratios = {pairing: speed / middle for pairing, speed in speeds.items()}
    return [
        (pairing, ratio)
        for (pairing, ratio), distance in zip(ratios.items(), far, strict=True)
        if abs(distance) > FAR and abs(ratio - 1) >= MATTERS
    ]


def _positive(value: float | None) -> TypeGuard[float]:
    return value is not None and value > 0 and usable(value)


def basis(cell: Cell, base: Row) -> list[str]:
    """Return the sentences about the method and the environment of the runs."""
    return [*_pooled(cell), *_basis(cell, base), *_odd(cell, base)]


def _pooled(cell: Cell) -> list[str]:
    """Return the sentence about submissions whose runs are joined."""
    labels = list(dict.fromkeys(measures.run.submission for measures in cell.runs))
    if len(labels) < 2:
        return []
    return [
        f"Runs of {len(labels)} submissions of the same study, site and software are pooled: {', '.join(labels)}."
        " Losses of equal seed count once, by their mean."
    ]


def _basis(cell: Cell, base: Row) -> list[str]:
    sentences = _method(cell)
    slow = [row for row in cell.rows if row.outcome in (NOT_FASTER, WORSE_SLOWER)]
    if any(row.speed and not row.speed.slower for row in slow):
        sentences.append(f"Not faster is what is shown to gain less than {100 * cell.criteria.speed_margin:.3g} %.")
    margin = next((row.loss_margin for row in cell.rows if row.loss_margin is not None), None)
    if margin is not None:
        sentences.append(
            f"A loss is as good when two one-sided tests show it within {margin:.4f} of the baseline's"
            f" ({100 * cell.criteria.loss_margin:.3g} % of it)."
        )
    for row in cell.rows:
        environment = row.runs[0].run.settings.scheme.variables
        if environment:
            sentences.append(
                f"{row.scheme} ran with {format_assignments(environment)}; what the MPI library then sent is not known."
            )
    if any(row.partial for row in cell.rows):
        sentences.append("* from runs that did not complete; they are compared with nothing.")
    log = next((measures.run.log for measures in base.runs if measures.run.log), None)
    configuration = log.read_event(Configuration) if log else Configuration.read({})
    uniform, unigram = configuration.valid_loss_uniform, configuration.valid_loss_unigram
    if uniform is not None and unigram is not None:
        sentences.append(
            f"For scale: a model that guesses has a loss of {uniform:.3f}, one that knows only how often each byte"
            f" occurs {unigram:.3f}."
        )
    return sentences


def _method(cell: Cell) -> list[str]:
    """Return the sentences about the intervals and findings."""
    found = [row.speed for row in cell.rows if row.speed]
    if not found:
        return []
    counts = sorted({finding.pairs for finding in found})
    pairs = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    tested = any(finding.equal for finding in found)
    basis = f"intervals ({100 * CONFIDENCE:.0f} %, Student's t) describe one comparison each"
    basis = basis if tested else "no interval can be given"
    noun = "pair" if counts == [1] else "pairs"
    looks = f"{', '.join(map(str, LOOKS[:-1]))} or {LOOKS[-1]}"
    level = (
        f"All findings of the report are held to {100 * LEVEL:.0f} % together, also if repeats are added and it is read"
        f" again at {looks} pairs."
    )
    held = [level] if tested else []
    if any(measures.run.given for measures in cell.runs):
        return [
            f"Each scheme is compared over {pairs} {noun} of logs, the first with the baseline's first and so on in the"
            f" order given; {basis}.",
            *held,
            "That the logs of a pair had equal model, batch, ranks, seed and nodes is not checked.",
        ]
    return [f"Each scheme is compared over {pairs} {noun} of runs of equal seed{_where(cell)}; {basis}.", *held]


def _odd(cell: Cell, base: Row) -> list[str]:
    """Sentences about nodes and allocations that were unlike the others."""
    sentences = [
        f"Node {host.name} is {100 * host.excess:.0f} % slower than the median of its runs' nodes"
        f" ({host.slow} of {host.runs} runs)."
        for host in slow_hosts(cell.runs)
    ]
    for pairing, ratio in odd_baselines(base.runs):
        sentences.append(
            f"The baseline of {pairing} ran at {ratio:.2f} times the median speed of the baselines: its nodes, or other"
            " work on them, were unlike the others'."
        )
    return sentences


def _where(cell: Cell) -> str:
    """Whether the runs of a pair had the same nodes, in words."""
    base = cell.row(cell.baseline)
    others = [row for row in cell.rows if row is not base and row.speed]
    both = [pair for row in others for pair in paired(row.runs, base.runs)] if base else []
    apart = sum(mine.run.allocation != other.run.allocation for mine, other in both)
    if not apart:
        return " and allocation"
    if apart == len(both):
        return ", each in an allocation of its own, perhaps on other nodes"
    return f"; {apart} of all {len(both)} pairs ran in two allocations, perhaps on other nodes"
