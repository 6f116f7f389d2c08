"""Tests of rank traces: written data are read back, clocks are aligned, and invalid traces are refused."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.contract.trace import (
    CODEC,
    STEP,
    STEPS,
    ClockComparison,
    StepTrace,
    TraceSpan,
    merge_traces,
    name_file,
    read,
    write_trace,
)
from hpcbench.contract.training import Train
from hpcbench.errors import UserError

SAME = ClockComparison(0.0, 0.0, 0.0)


def span(begin: float, end: float, track: str = "DP BACKWARD GRAD", name: str = "call", step: int = 3) -> TraceSpan:
    return TraceSpan(track, name, begin, end, step, {"wire_bytes": 7})


def trace(rank: int, *spans: TraceSpan, before: ClockComparison = SAME, after: ClockComparison = SAME) -> StepTrace:
    return StepTrace(rank, f"n{rank}", before, after, spans)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    before, after = ClockComparison(10.0, 0.25, 1e-6), ClockComparison(20.0, 0.26, 2e-6)
    spans = (span(10.5, 11.0, STEPS, STEP), span(10.6, 10.75), span(10.625, 10.6875, CODEC, "encode"))
    original = StepTrace(12, "node-7", before, after, spans, left_out=5)
    write_trace(tmp_path, original)
    assert read(tmp_path / name_file(12)) == original
    # a viewer only needs this file: complete events with a duration, and names
    content = json.loads((tmp_path / name_file(12)).read_text())
    assert {event["ph"] for event in content["traceEvents"]} == {"X", "M"}
    assert all(
        {"ts", "dur", "pid", "tid", "name"} <= set(event) for event in content["traceEvents"] if event["ph"] == "X"
    )


@given(
    st.lists(st.tuples(st.floats(0, 9, width=32), st.floats(0, 3, width=32)), min_size=1, max_size=30),
    st.sampled_from(["DP BACKWARD GRAD", "PP FORWARD ACT"]),
)
def test_no_two_calls_of_a_lane_overlap(bounds: list[tuple[float, float]], track: str) -> None:
    """A viewer displays a span that begins within another span as its child."""
    rank_trace = trace(0, *(span(begin, begin + length, track) for begin, length in bounds))
    lanes = defaultdict(list)
    for event in merge_traces([rank_trace])["traceEvents"]:
        if event["ph"] == "X":
            lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert sum(map(len, lanes.values())) == len(bounds)
    for calls in lanes.values():
        for (_, end), (begin, _) in pairwise(calls):
            assert begin >= end - 0.01, "to the rounding of a time"


@pytest.mark.parametrize("drift", [0.0, 1e-4])
def test_ranks_come_on_the_first_ones_clock(drift: float) -> None:
    """The second clock is initially 1000 s ahead and runs too fast."""

    def theirs(at: float) -> float:
        return at + 1000 + drift * (at - 10)

    def compared(at: float) -> ClockComparison:
        return ClockComparison(theirs(at), theirs(at) - at, 3e-6)

    events = [(12.0, 12.5), (14.25, 15.0), (19.0, 19.5)]
    first = trace(0, *(span(*bounds, STEPS, STEP) for bounds in events))
    spans = (span(theirs(begin), theirs(end), STEPS, STEP) for begin, end in events)
    second = trace(1, *spans, before=compared(10.0), after=compared(20.0))
    joined = merge_traces([second, first])
    placed = {
        rank: [
            (event["ts"], event["dur"])
            for event in joined["traceEvents"]
            if event["ph"] == "X" and event["pid"] == rank
        ]
        for rank in (0, 1)
    }
    assert placed[0] == [((begin - 12) * 1e6, (end - begin) * 1e6) for begin, end in events]
    for here, there in zip(placed[0], placed[1], strict=True):
        assert there == pytest.approx(here, abs=0.02)
    assert joined["otherData"] == {"ranks": 2, "left_out": 0, "clock_error_us": 3.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a complete trace"),
        ("[]", "not the trace of a rank"),
        ('{"otherData": {}, "traceEvents": []}', "no rank, host"),
    ],
)
def test_what_is_no_trace_is_said(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "rank-0.json"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read(path)


def test_events_of_others_are_passed_over(tmp_path: Path) -> None:
    write_trace(tmp_path, trace(0, span(1.0, 2.0)))
    path = tmp_path / name_file(0)
    content = json.loads(path.read_text())
    content["traceEvents"] += [3, {"ph": "X"}, {"ph": "X", "name": "x", "cat": "y", "ts": 1, "dur": "2", "args": {}}]
    path.write_text(json.dumps(content))
    assert len(read(path).spans) == 1


@pytest.mark.parametrize("steps", [[3], [0, 2], [5, 4], [1, 1001], [1, 2, 3], [9, 11]])
def test_steps_that_are_none_are_refused(steps: list[int]) -> None:
    with pytest.raises(ValueError, match="steps"):
        Train.model_validate({"steps": 10, "warmup_steps": 1, "global_batch": 1, "trace": {"steps": steps}})
