"""Nodes and allocations that are unlike the others, by name."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeGuard

from hpcbench.collect.lines import printable
from hpcbench.report.measures import Measures
from hpcbench.report.statistics import usable

FEWEST = 4
"""Values: of three, one often lies apart by chance."""
_SIGMA = 1.4826
"""Standard deviations of a normal distribution in its median absolute deviation."""


def robust_deviations(values: Sequence[float]) -> list[float]:
    """Distance of each value from the median, in units that are standard deviations where the bulk is normal.

    The median absolute deviation is the scale, which one outlier does not stretch. Fewer than `FEWEST` values have no
    outlier: all are 0. Where more than half of the values are equal, any other is infinitely far.
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
"""Part by which it must also differ: among nodes that agree to a thousandth, a thousandth is far, and no matter."""
_TWICE = 2


@dataclass(frozen=True)
class SlowHost:
    """A node that took longer than the other nodes of its runs for the same work."""

    name: str
    excess: float
    """By which part it took longer than the median of a run's nodes: the median of the runs in which it was slow."""
    slow: int
    """Runs in which it was slow."""
    runs: int
    """Runs that it was in, of those with enough nodes to tell."""


def slow_hosts(runs: Sequence[Measures]) -> list[SlowHost]:
    """Nodes that were slow twice, or whenever they were used; the slowest first.

    What counts is the time of computing over that of ranks with the same work: not of waiting for messages, or one slow
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
    """Pairings whose baseline was far from the other baselines: name, and speed over the median of all.

    Such a pair still compares two runs of one allocation; but what the others show may not be what it shows.
    """
    speeds = {
        printable(run.run.pairing, 40): run.samples_per_s
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
