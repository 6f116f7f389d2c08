"""Check whether traces contain all calls: a profiler may lose calls that end while it stops."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.diagnose.calls import TracedCall
from hpcbench.diagnose.kineto import RankTrace
from hpcbench.diagnose.ranks import ENDS_TOGETHER, Key


@dataclass(frozen=True)
class Gap:
    """Calls that are missing from a rank's trace."""

    rank: int | None
    operation: str
    present: int
    expected: int
    """Number of calls if every step had as many calls as the step with the most calls on any rank of the group."""


def find_gaps(traces: Sequence[RankTrace]) -> list[Gap]:
    """Return the gaps of all traces, by rank and operation.

    All ranks of a group make the same collective calls, and nearly all programs make the same calls in each step.
    """
    counts: dict[Key, dict[int, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for number, trace in enumerate(traces):
        for call in trace.calls:
            if call.operation in ENDS_TOGETHER and (step := _step_of(call, trace)) is not None:
                counts[call.group.name, call.group.ranks, call.operation][number][step] += 1
    present: Counter[tuple[int, str]] = Counter()
    expected: Counter[tuple[int, str]] = Counter()
    for (_, _, operation), by_trace in counts.items():
        most = max(count for steps in by_trace.values() for count in steps.values())
        for number, steps in by_trace.items():
            present[number, str(operation)] += sum(steps.values())
            expected[number, str(operation)] += most * max(1, len(traces[number].steps))
    return [
        Gap(traces[number].rank, operation, present[number, operation], count)
        for (number, operation), count in sorted(expected.items())
        if present[number, operation] < count
    ]


def _step_of(call: TracedCall, trace: RankTrace) -> int | None:
    """Return the number of the call's step: 0 if the trace has no steps, or None for a call between steps."""
    middle = (call.span.begin + call.span.end) / 2
    steps = (number for number, span in trace.steps.items() if span.begin <= middle <= span.end)
    return next(steps, None if trace.steps else 0)
