"""Combination of the traces of several ranks: common steps, a common clock, and time spent waiting for late ranks."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from hpcbench.diagnose.calls import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, TracedCall
from hpcbench.diagnose.kineto import RankTrace
from hpcbench.diagnose.spans import Span, clip
from hpcbench.errors import UserError

ENDS_TOGETHER = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
"""Operations that end at about the same time on all ranks, because each rank needs data from all others."""

Key = tuple[object, ...]


def check_ranks(traces: Sequence[RankTrace]) -> None:
    """Check that the traces belong to different ranks of one job.

    Raises
    ------
    UserError
        Two traces belong to the same rank, or to jobs with different numbers of ranks.
    """
    by_rank: dict[int, RankTrace] = {}
    for trace in traces:
        if trace.world != traces[0].world:
            raise UserError(
                f"{trace.path}: the number of ranks is {trace.world or 'unknown'}, but in {traces[0].path} it is "
                f"{traces[0].world or 'unknown'}: give traces of the same job"
            )
        if trace.rank is None:
            if len(traces) > 1:
                raise UserError(f"{trace.path}: the trace does not contain its rank: give only this trace")
            continue
        if trace.rank in by_rank:
            raise UserError(
                f"{trace.path}: belongs to rank {trace.rank}, as does {by_rank[trace.rank].path}: give one trace per "
                "rank"
            )
        by_rank[trace.rank] = trace


def keep_common_steps(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """Restrict the traces to the steps that all of them contain.

    Raises
    ------
    UserError
        The traces have no common step.
    """
    if not any(trace.steps for trace in traces):
        return [_within(trace, trace.window) for trace in traces]
    common = set.intersection(*(set(trace.steps) for trace in traces))
    if not common:
        steps = "; ".join(f"{trace.path.name}: {_range(trace.steps)}" for trace in traces)
        raise UserError(f"the traces have no common step ({steps}): trace the same steps on each rank")
    common_traces = []
    for trace in traces:
        trace = replace(trace, steps={number: span for number, span in trace.steps.items() if number in common})
        common_traces.append(_within(trace, trace.window))
    return common_traces


def _range(steps: dict[int, Span]) -> str:
    return f"steps {min(steps)} to {max(steps)}" if steps else "no steps"


def _within(trace: RankTrace, window: Span) -> RankTrace:
    """Restrict a trace to a window. Calls whose midpoint is in the window are kept."""
    calls = [call for call in trace.calls if window.begin <= (call.span.begin + call.span.end) / 2 <= window.end]
    return replace(trace, computation=clip(trace.computation, window), calls=calls)


def mark_waiting(traces: Sequence[RankTrace]) -> bool:
    """Set the time at which the last rank began each call. Return False if no calls could be matched.

    Calls are matched by their order within a group. Matched calls end simultaneously, so the clock difference of two
    ranks is the median difference of their end times.
    """
    if len(traces) < 2:
        return False
    matched = [calls for calls in _match(traces) if len(calls) > 1]
    ahead = _clock_differences(traces, matched)
    for calls in matched:
        last = max(call.span.begin - ahead[number] for number, call in calls)
        for number, call in calls:
            call.waits_until = last + ahead[number]
    return bool(matched)


def _match(traces: Sequence[RankTrace]) -> list[list[tuple[int, TracedCall]]]:
    """Return groups of matching calls, each call with the index of its trace."""
    together: dict[tuple[Key, int], list[tuple[int, TracedCall]]] = defaultdict(list)
    for number, trace in enumerate(traces):
        count: Counter[Key] = Counter()
        for call in trace.calls:
            key: Key = (call.group.name, call.group.ranks, call.operation, call.dtype, call.message_bytes)
            if call.operation in ENDS_TOGETHER:
                together[key, count[key]].append((number, call))
            count[key] += 1
    numbers: dict[Key, set[int]] = defaultdict(set)
    for (key, _), calls in together.items():
        numbers[key].add(len(calls))
    # If the numbers of calls differ between ranks, the calls cannot be matched.
    return [calls for (key, _), calls in together.items() if len(numbers[key]) == 1]


def _clock_differences(traces: Sequence[RankTrace], matched: Sequence[Sequence[tuple[int, TracedCall]]]) -> list[float]:
    """Return how far each trace's clock is ahead of the first trace's clock, in microseconds.

    If a rank has no calls in common with the first rank, the two clocks are compared through other ranks.
    """
    apart: dict[tuple[int, int], list[float]] = defaultdict(list)
    for calls in matched:
        for first, call in calls:
            for second, other in calls:
                if first < second:
                    apart[first, second].append(other.span.end - call.span.end)
    ahead: dict[int, float] = {0: 0.0}
    pending = True
    while pending:
        pending = False
        for (first, second), differences in apart.items():
            if (first in ahead) != (second in ahead):
                base, new, sign = (first, second, 1) if first in ahead else (second, first, -1)
                ahead[new] = ahead[base] + sign * median(differences)
                pending = True
    return [ahead.get(number, (traces[0].base_us - trace.base_us)) for number, trace in enumerate(traces)]
