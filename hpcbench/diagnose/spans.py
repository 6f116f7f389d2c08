"""Arithmetic on time spans."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar


class Span(NamedTuple):
    """A time span from `begin` to `end`, in microseconds of one clock."""

    begin: float
    end: float

    @property
    def length(self) -> float:
        """Length in microseconds."""
        return self.end - self.begin


def merge(spans: Iterable[Span]) -> list[Span]:
    """Return the union of spans as ordered, disjoint spans."""
    union: list[Span] = []
    for span in sorted(spans):
        if union and span.begin <= union[-1].end:
            union[-1] = Span(union[-1].begin, max(union[-1].end, span.end))
        else:
            union.append(span)
    return union


def subtract(spans: Sequence[Span], holes: Sequence[Span]) -> list[Span]:
    """Subtract holes from spans. Spans and holes must be ordered and disjoint."""
    remainder, first = [], 0
    for begin, end in spans:
        while first < len(holes) and holes[first].end <= begin:
            first += 1
        k, start = first, begin
        while k < len(holes) and holes[k].begin < end:
            if holes[k].begin > start:
                remainder.append(Span(start, holes[k].begin))
            start = max(start, holes[k].end)
            k += 1
        if start < end:
            remainder.append(Span(start, end))
    return remainder


def clip(spans: Iterable[Span], window: Span) -> list[Span]:
    """Return the parts of spans within a window."""
    parts = (Span(max(span.begin, window.begin), min(span.end, window.end)) for span in spans)
    return [part for part in parts if part.begin < part.end]


def total(spans: Iterable[Span]) -> float:
    """Return the total length of disjoint spans in microseconds."""
    return sum(span.length for span in spans)


Label = TypeVar("Label")


def share_exposed(labelled: Iterable[tuple[Label, Span]], covered: Sequence[Span]) -> Counter[Label]:
    """For each label, return the time in microseconds that its spans spend outside the covered spans.

    If spans of several labels overlap, their time is shared equally, so the sum over labels is the length of the union.

    Parameters
    ----------
    covered
        Ordered, disjoint spans.
    """
    changes: list[tuple[float, int, int]] = [(span.begin, -1, 1) for span in covered]
    changes += [(span.end, -1, -1) for span in covered]
    labels: list[Label] = []
    for label, span in labelled:
        changes += [(span.begin, len(labels), 1), (span.end, len(labels), -1)]
        labels.append(label)
    changes.sort()
    exposed: Counter[Label] = Counter()
    active: Counter[Label] = Counter()
    covers, before = 0, 0.0
    for at, number, change in changes:
        if not covers and at > before:
            for label in active:
                exposed[label] += (at - before) / len(active)  # type: ignore[assignment]
        before = at
        if number < 0:
            covers += change
            continue
        active[labels[number]] += change
        if not active[labels[number]]:
            del active[labels[number]]
    return exposed
