"""Core time of messages if ranks share cores, where most of the cost of a message is work.

Ranks of one machine send through its memory and its kernel, which copy each message several times and wake the waiting
rank. `hpcbench bench network` measures, on links without a limit, the seconds that a call adds to a turn in which all
ranks compute. No core is idle, because another rank computes while one waits. The core time of a call on one rank is
therefore the added time multiplied by cores per rank.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.predict import constants

Curve = tuple[tuple[float, float], ...]
"""Pairs (bytes, seconds of a core on each rank), in order of bytes."""
Grouping = tuple[int, bool]
"""Number of ranks in a group, and whether it has several nodes."""


@dataclass(frozen=True)
class CoreCosts:
    """Seconds of a core that a call costs each of its ranks.

    Attributes
    ----------
    calls
        Curves by operation, which is a collective or ``send``, and by measured group: pairs, and all ranks.
    """

    calls: tuple[tuple[str, tuple[tuple[Grouping, Curve], ...]], ...]
    call_s: float = constants.PLAN_CALL_S
    """Seconds for a call of a plan in addition to its messages, for its start and end in Python."""
    part_s: float = constants.PLAN_MESSAGE_S
    """Seconds for each message of a plan's step after the first one."""
    networks: float = 0.0
    """Cores that the kernel takes while all nodes send at the bandwidth of their links."""
    plan_factor: float = constants.PLAN_FACTOR
    """Time of a plan's steps divided by that of their messages alone. Sums, copies and frames take the rest."""

    def time_message(self, nbytes: float, *, crossing: bool) -> float:
        """Return the seconds for one message that a rank sends while it receives one."""
        return self.time_collective("send", nbytes, ranks=2, crossing=crossing)

    def time_collective(self, operation: str, nbytes: float, *, ranks: int, crossing: bool) -> float:
        """Return the seconds for a library's collective of a vector of `nbytes`.

        Between a pair and the measured number of ranks they grow with the logarithm of the ranks.
        """
        curves = dict(dict(self.calls).get(operation, ()))
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
        """Return the seconds for messages that are sent at the same time: pairs (bytes, whether between nodes)."""
        if not parts:
            return 0.0
        starts = [self.time_message(0.0, crossing=crossing) for _, crossing in parts]
        moving = sum(
            self.time_message(nbytes, crossing=crossing) - start
            for (nbytes, crossing), start in zip(parts, starts, strict=True)
        )
        return self.plan_factor * (max(starts) + (len(parts) - 1) * self.part_s + moving)


def read_core_costs(raw: dict[str, Any], cores: float) -> CoreCosts | None:
    """Read the core costs from a table of links without a limit; None if each of its ranks had its own core.

    Parameters
    ----------
    cores
        Number of cores that the ranks shared.
    """
    ranks, rows = sum(raw["ranks_per_node"]), raw.get("between_work", [])
    if not rows or ranks <= cores:
        return None
    return _fit_rows(rows, cores / ranks)


def _fit_rows(rows: Sequence[dict[str, Any]], share: float) -> CoreCosts:
    """Derive the core costs from the seconds that calls added to a turn. A rank has this share of the cores."""
    points: dict[str, dict[Grouping, list[tuple[float, float]]]] = {}
    for row in rows:
        curve = points.setdefault(row["operation"], {}).setdefault((row["ranks"], row["crossing"]), [])
        curve.append((float(row["bytes"]), row["seconds"] * share))
    calls = {
        operation: {grouping: _make_monotonic(curve) for grouping, curve in curves.items()}
        for operation, curves in points.items()
    }
    return CoreCosts(tuple((operation, tuple(by_group.items())) for operation, by_group in calls.items()))


def _make_monotonic(points: Sequence[tuple[float, float]]) -> Curve:
    """Sort points by bytes and raise those that are below a smaller one, which is noise."""
    curve: list[tuple[float, float]] = []
    for nbytes, seconds in sorted(points):
        curve.append((nbytes, max(seconds, curve[-1][1] if curve else 0.0)))
    return tuple(curve)


def interpolate_curve(curve: Curve, nbytes: float) -> float:
    """Return the seconds at a size: linear between points, and proportional to the bytes after the last one."""
    if not curve or nbytes <= curve[0][0]:
        return curve[0][1] if curve else 0.0
    most, longest = curve[-1]
    if nbytes >= most:
        return longest * nbytes / most
    k = bisect.bisect_left(curve, (nbytes, 0.0))
    (a, x), (b, y) = curve[k - 1], curve[k]
    return x + (y - x) * (nbytes - a) / (b - a)
