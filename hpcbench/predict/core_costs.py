"""Core time of messages if ranks share cores. In this case, most of the cost of a message is processor time.

Ranks on one machine communicate through memory and the kernel. The kernel copies each message several times and wakes
the waiting rank. `hpcbench bench network` measures the time that a call adds to a turn in which all ranks compute, on
links without a bandwidth limit. No core is idle, because another rank computes while one waits. The core time of a call
on one rank is therefore the added time multiplied by the number of cores per rank.
"""

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.predict import constants

Curve = tuple[tuple[float, float], ...]
"""Pairs (bytes, core seconds on each rank), sorted by bytes."""
Grouping = tuple[int, bool]
"""Number of ranks in a group, and whether the group spans several nodes."""


@dataclass(frozen=True)
class CoreCosts:
    """Core seconds of a call on each participating rank."""

    calls: Mapping[str, Mapping[Grouping, Curve]]
    """Curves, keyed by operation (a collective or ``send``) and by measured group (pairs, or all ranks)."""
    call_s: float = constants.PLAN_CALL_S
    """Seconds for starting and ending a plan's call in Python, in addition to its messages."""
    part_s: float = constants.PLAN_MESSAGE_S
    """Seconds for each message after the first in a plan step."""
    networks: float = 0.0
    """Cores that the kernel uses while all nodes send at full link bandwidth."""
    plan_factor: float = constants.PLAN_FACTOR
    """Time of a plan's steps divided by the time of their messages. The rest is spent on sums, copies and checksums."""

    def time_message(self, nbytes: float, *, crossing: bool) -> float:
        """Return the time in seconds of one message that a rank sends while receiving another."""
        return self.time_collective("send", nbytes, ranks=2, crossing=crossing)

    def time_collective(self, operation: str, nbytes: float, *, ranks: int, crossing: bool) -> float:
        """Return the time in seconds of a library collective on a vector of `nbytes`.

        From two ranks to the measured number of ranks, the time grows with the logarithm of the number of ranks.
        """
        curves = self.calls.get(operation, {})
        if not curves:  # An all-to-all is one message to each other rank.
            return (ranks - 1) * self.time_message(nbytes / ranks, crossing=crossing)
        most = max(size for size, _ in curves)
        pair = curves.get((2, crossing), curves.get((2, not crossing)))
        largest = next((curve for (size, _), curve in curves.items() if size == most), pair)
        if pair is None or largest is None or most == 2:
            return interpolate_curve(pair or largest or (), nbytes)
        share = math.log2(ranks / 2) / math.log2(most / 2)
        pair_s, largest_s = (interpolate_curve(curve, nbytes) for curve in (pair, largest))
        return max(pair_s + share * (largest_s - pair_s), 0.0)

    def time_step(self, parts: Sequence[tuple[float, bool]]) -> float:
        """Return the time in seconds of concurrent messages, given as pairs (bytes, whether to another node)."""
        if not parts:
            return 0.0
        starts = [self.time_message(0.0, crossing=crossing) for _, crossing in parts]
        moving = sum(
            self.time_message(nbytes, crossing=crossing) - start
            for (nbytes, crossing), start in zip(parts, starts, strict=True)
        )
        return self.plan_factor * (max(starts) + (len(parts) - 1) * self.part_s + moving)


def read_core_costs(raw: dict[str, Any], cores: float) -> CoreCosts | None:
    """Read the core costs from a table of unlimited links, or return None if each rank had its own core.

    Parameters
    ----------
    cores
        Number of cores that the ranks shared.
    """
    ranks, rows = sum(raw["ranks_per_node"]), raw.get("between_work", [])
    if not rows or ranks <= cores:
        return None
    points: dict[str, dict[Grouping, list[tuple[float, float]]]] = {}
    for row in rows:
        curve = points.setdefault(row["operation"], {}).setdefault((row["ranks"], row["crossing"]), [])
        curve.append((float(row["bytes"]), row["seconds"] * (cores / ranks)))
    return CoreCosts(
        {
            operation: {grouping: _make_monotonic(curve) for grouping, curve in curves.items()}
            for operation, curves in points.items()
        }
    )


def _make_monotonic(points: Sequence[tuple[float, float]]) -> Curve:
    """Sort points by bytes, and raise points that are lower than a previous point, because such decreases are noise."""
    curve: list[tuple[float, float]] = []
    for nbytes, seconds in sorted(points):
        curve.append((nbytes, max(seconds, curve[-1][1] if curve else 0.0)))
    return tuple(curve)


def interpolate_curve(curve: Curve, nbytes: float) -> float:
    """Return the time in seconds at a size: linear between points, proportional to bytes beyond the last point."""
    if not curve or nbytes <= curve[0][0]:
        return curve[0][1] if curve else 0.0
    most, longest = curve[-1]
    if nbytes >= most:
        return longest * nbytes / most
    k = bisect.bisect_left(curve, (nbytes, 0.0))
    (a, x), (b, y) = curve[k - 1], curve[k]
    return x + (y - x) * (nbytes - a) / (b - a)
