"""Tests of spans, compared with a grid of whole microseconds."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hpcbench.diagnose.spans import Span, clip, merge, share_exposed, subtract, total

SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: Span(pair[0], sum(pair))), max_size=8
)


def raster(spans: list[Span]) -> set[int]:
    return {at for begin, end in spans for at in range(int(begin), int(end))}


@given(SPANS, SPANS)
def test_merge_and_subtract(spans: list[Span], holes: list[Span]) -> None:
    union, cut = merge(spans), merge(holes)
    assert raster(union) == raster(spans) and total(union) == len(raster(spans))
    left = subtract(union, cut)
    assert raster(left) == raster(spans) - raster(holes) and total(left) == len(raster(left))
    assert all(first.end < second.begin for first, second in pairwise(union))


@given(SPANS, st.integers(0, 30), st.integers(0, 20))
def test_clip(spans: list[Span], begin: int, length: int) -> None:
    window = Span(begin, begin + length)
    assert raster(clip(merge(spans), window)) == raster(spans) & raster([window])


@given(st.lists(st.tuples(st.sampled_from("abc"), SPANS), max_size=4), SPANS)
def test_labels_share_exposed_time(labelled: list[tuple[str, list[Span]]], covered: list[Span]) -> None:
    pairs = [(label, span) for label, spans in labelled for span in spans]
    expected: Counter[str] = Counter()
    for at in set(range(40)) - raster(covered):
        active = {label for label, span in pairs if span.begin <= at < span.end}
        for label in active:
            expected[label] += 1 / len(active)  # type: ignore[assignment]
    shared = share_exposed(pairs, merge(covered))
    assert {label: round(value, 9) for label, value in shared.items() if value} == {
        label: round(value, 9) for label, value in expected.items()
    }
