"""What messages cost the cores where ranks share them: there a message is work before it is anything else.

Ranks of one machine send through its memory and its kernel, which copy each message several times and wake whoever
waits. `hpcbench bench network` measures on links without a limit what a call adds to a turn of all ranks that is
otherwise work. While one rank waits another one works, so that no core rests: a rank's own part of the time that a call
adds is the cores for each rank.
"""

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

PLANNED = "planned all-reduce"
"""The all-reduce of a codec's plan, without a codec: two steps, in each of which a rank sends to all others."""
BACKGROUND = "background all-reduce"
"""The library's all-reduce while its rank works: a thread drives it."""
WORK_S = 2e-3
"""Seconds of a core that a rank works before each call, where nothing else is said."""
Curve = tuple[tuple[float, float], ...]
"""Bytes, and seconds of a core on each rank; in order of bytes."""
Grouping = tuple[int, bool]
"""Ranks of a group, and whether it lies on several nodes."""


@dataclass(frozen=True)
class CoreCosts:
    """Seconds of a core that a call costs each of its ranks.

    Attributes
    ----------
    calls
        Curves by operation, a collective's name or ``send``, and by the groups on which they were measured: pairs, and
        all ranks.
    """

    calls: tuple[tuple[str, tuple[tuple[Grouping, Curve], ...]], ...]
    call_s: float = 0.0
    """Seconds for a call that is carried out by a plan, beside its messages: what Python does to begin and end it."""
    part_s: float = 0.0
    """Seconds for each message of a step of a plan beyond the first."""
    background_s: float = 0.0
    """Seconds for handing a call to the thread that drives it while its rank computes, and for taking it back."""
    waiting: float = 0.0
    """Share of a core that a rank takes from those who compute while it waits."""
    driving: float = 0.0
    """Share of a core that a thread takes while it drives what is under way and its rank computes."""
    networks: float = 0.0
    """Cores that the kernel takes while all nodes send as much as their links allow."""
    plan_factor: float = 1.0
    """What a plan's steps take, over what their messages take alone: sums, copies and frames come on top."""
    work_s: float = WORK_S
    """Seconds of a core before each call, when this was measured."""
    less_work: tuple["CoreCosts", ...] = ()
    """The same with less work before each call, the least first: ranks that call often do not miss each other long."""

    def after(self, work_s: float) -> "CoreCosts":
        """What calls cost with so much work of a core before each, on straight lines between what was measured."""
        known = [*self.less_work, self]
        k = bisect.bisect_left([one.work_s for one in known], work_s)
        if k in (0, len(known)):
            return known[min(k, len(known) - 1)]
        below, above = known[k - 1], known[k]
        return _between(below, above, (work_s - below.work_s) / (above.work_s - below.work_s))

    def message(self, nbytes: float, *, crossing: bool) -> float:
        """Seconds for one message that a rank sends while it receives one."""
        return self.collective("send", nbytes, ranks=2, crossing=crossing)

    def collective(self, operation: str, nbytes: float, *, ranks: int, crossing: bool) -> float:
        """Seconds for a library's collective of `nbytes`, the whole vector.

        Between a pair and the measured number of ranks they grow with the logarithm of the ranks.
        """
        curves = dict(dict(self.calls).get(operation, ()))
        if not curves:  # an all-to-all: a message to each other rank
            return (ranks - 1) * self.message(nbytes / ranks, crossing=crossing)
        most = max(size for size, _ in curves)
        pair = curves.get((2, crossing), curves.get((2, not crossing)))
        whole = next((curve for (size, _), curve in curves.items() if size == most), pair)
        if pair is None or whole is None or most == 2:
            return interpolate_curve(pair or whole or (), nbytes)
        share = math.log2(ranks / 2) / math.log2(most / 2)
        return max(
            interpolate_curve(pair, nbytes)
            + share * (interpolate_curve(whole, nbytes) - interpolate_curve(pair, nbytes)),
            0.0,
        )

    def step(self, parts: Sequence[tuple[float, bool]]) -> float:
        """Seconds for messages that are sent at the same time, and waited for once: bytes, and whether they cross."""
        if not parts:
            return 0.0
        starts = [self.message(0.0, crossing=crossing) for _, crossing in parts]
        moving = sum(
            self.message(nbytes, crossing=crossing) - start
            for (nbytes, crossing), start in zip(parts, starts, strict=True)
        )
        return self.plan_factor * (max(starts) + (len(parts) - 1) * self.part_s + moving)


def read_core_costs(raw: dict[str, Any], cores: float) -> CoreCosts | None:
    """The work of messages by a table of links without a limit; None if its ranks had cores of their own.

    Parameters
    ----------
    cores
        That the ranks shared.
    """
    ranks, rows = sum(raw["ranks_per_node"]), raw.get("between_work", [])
    if not rows or ranks <= cores:
        return None
    # what those who compute lose is more than what a clock of those who wait counts; older tables have that alone
    waiting = raw.get("waiting_takes")
    waiting = raw.get("waiting_share", 0.0) if waiting is None else waiting
    driving = raw.get("driving_takes")
    driving = waiting if driving is None else driving
    found = replace(_of_rows(rows, cores / ranks), waiting=waiting, driving=driving)
    less = [replace(_of_rows(one["rows"], cores / ranks), work_s=one["work_s"]) for one in raw.get("less_work", [])]
    return replace(found, less_work=tuple(sorted(less, key=lambda one: one.work_s)))


def _of_rows(rows: Sequence[dict[str, Any]], share: float) -> CoreCosts:
    """The work of messages by what calls added to a turn of all ranks, of which a rank has this share."""
    points: dict[str, dict[Grouping, list[tuple[float, float]]]] = {}
    for row in rows:
        curve = points.setdefault(row["operation"], {}).setdefault((row["ranks"], row["crossing"]), [])
        curve.append((float(row["bytes"]), row["seconds"] * share))
    calls = {
        operation: {grouping: _rising(curve) for grouping, curve in curves.items()}
        for operation, curves in points.items()
    }
    made = tuple((operation, tuple(curves.items())) for operation, curves in calls.items())
    planned = calls.get(PLANNED, {})
    found = CoreCosts(made, part_s=_part_s(planned), background_s=_background_s(calls))
    found = replace(found, call_s=_call_s(found, planned))
    return replace(found, plan_factor=_plan_factor(found, planned))


def _between(below: CoreCosts, above: CoreCosts, share: float) -> CoreCosts:
    """Costs that are so far on the way from one to the other. Both were measured with the same calls."""

    def mean(low: float, high: float) -> float:
        return low + share * (high - low)

    calls = {
        operation: tuple(
            (grouping, tuple((nbytes, mean(low, high)) for (nbytes, low), (_, high) in zip(curve, other, strict=True)))
            for (grouping, curve), (_, other) in zip(curves, dict(above.calls)[operation], strict=True)
        )
        for operation, curves in below.calls
    }
    return replace(
        above,
        calls=tuple(calls.items()),
        call_s=mean(below.call_s, above.call_s),
        part_s=mean(below.part_s, above.part_s),
        background_s=mean(below.background_s, above.background_s),
        plan_factor=mean(below.plan_factor, above.plan_factor),
    )


def _call_s(found: CoreCosts, planned: dict[Grouping, Curve]) -> float:
    """What the smallest all-reduce of a pair by a plan takes beyond its two messages: the mean over the groups."""
    beyond = [
        max(curve[0][1] - 2 * found.message(curve[0][0] / 2, crossing=crossing), 0.0)
        for (ranks, crossing), curve in planned.items()
        if ranks == 2
    ]
    return statistics.mean(beyond) if beyond else 0.0


def _background_s(calls: dict[str, dict[Grouping, Curve]]) -> float:
    """What the smallest all-reduce of a pair takes more in the background: the mean over the groups."""
    alone = calls.get("all-reduce", {})
    more = [max(curve[0][1] - alone[pair][0][1], 0.0) for pair, curve in calls.get(BACKGROUND, {}).items()]
    return statistics.mean(more) if more else 0.0


def count_lost_cores(asleep: float, awake: float, *, cores: int, waiting: int) -> float:
    """Cores that each rank which waits takes from those who compute on all cores.

    Parameters
    ----------
    asleep, awake
        Seconds of the same work while the others sleep, and while they wait.
    waiting
        Number of those that wait.
    """
    return max(cores * (1 - asleep / awake), 0.0) / waiting


def _plan_factor(found: CoreCosts, planned: dict[Grouping, Curve]) -> float:
    """Measured over reckoned seconds of a plan's all-reduces, but the smallest ones."""
    ratios = [
        max(seconds - found.call_s, 0.1 * seconds) / (2 * found.step([(nbytes / ranks, crossing)] * (ranks - 1)))
        for (ranks, crossing), curve in planned.items()
        for nbytes, seconds in curve[1:]
    ]
    return math.exp(statistics.mean(map(math.log, ratios))) if ratios else 1.0


def _part_s(planned: dict[Grouping, Curve]) -> float:
    """Seconds for a further message of a step, by what a plan's smallest all-reduce takes of all ranks and of a pair.

    It has two steps, in each of which a rank sends to all others.
    """
    starts = {grouping: curve[0][1] for grouping, curve in planned.items()}
    most = max((ranks for ranks, _ in starts), default=2)
    if most == 2:
        return 0.0
    pairs = [seconds for (ranks, _), seconds in starts.items() if ranks == 2]
    whole = [seconds for (ranks, _), seconds in starts.items() if ranks == most]
    return max(whole[0] - max(pairs), 0.0) / (2 * (most - 2)) if pairs else 0.0


def _rising(points: Sequence[tuple[float, float]]) -> Curve:
    """Points in order of bytes; what takes less than a smaller one does so by noise."""
    found: list[tuple[float, float]] = []
    for nbytes, seconds in sorted(points):
        found.append((nbytes, max(seconds, found[-1][1] if found else 0.0)))
    return tuple(found)


def interpolate_curve(curve: Curve, nbytes: float) -> float:
    """Seconds at a size: on straight lines between points, and beyond the last in proportion to the bytes."""
    if not curve or nbytes <= curve[0][0]:
        return curve[0][1] if curve else 0.0
    most, longest = curve[-1]
    if nbytes >= most:
        return longest * nbytes / most
    k = bisect.bisect_left(curve, (nbytes, 0.0))
    (a, x), (b, y) = curve[k - 1], curve[k]
    return x + (y - x) * (nbytes - a) / (b - a)
