"""Tests that the spans of a traced run add up to the counters in its log, and that the ranks' clocks are aligned."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from test_stop_and_resume import RUN

from hpcbench.contract.events import Event
from hpcbench.contract.layout import Layout
from hpcbench.contract.log_line import parse
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.step_line import Step
from hpcbench.contract.trace import CODEC, STEP, STEPS, WAIT, name_file, read
from hpcbench.contract.training import Data
from hpcbench.features.trace.settings import Trace

WORKER = Path(__file__).with_name("skewed_worker.py")
RANKS, AHEAD, FIRST, LAST = 4, 1000.0, 3, 5


@pytest.fixture(scope="module")
def traced(tmp_path_factory, mpi_run):
    """Return the log and traces of 4 ranks: 2 stages with 2 replicas, and clocks that differ by 1000 s.

    The traced steps are the steps covered by the final events of the log.
    """
    folder = tmp_path_factory.mktemp("traced")
    text = folder / "text"
    text.write_bytes(bytes(range(256)) * 1500)
    run = RUN.changed(
        data=Data(source="file", path=str(text), valid_fraction=0.5),
        train=RUN.train.changed(steps=5, warmup_steps=2, global_batch=8, trace=Trace(steps=[FIRST, LAST])),
        model=RUN.model.changed(layers=2),
        layout=Layout(dp=2, pp=2),
        scheme=NamedScheme(name="zfp", algorithm="two-shot", default="zfp:16"),
        ranks=RANKS,
    )
    (folder / "run.json").write_text(json.dumps(run.content()))
    done = mpi_run(RANKS, WORKER, str(folder / "run.json"), str(AHEAD))
    assert done.returncode == 0, done.stderr
    records = [parse(line, i) for i, line in enumerate(done.stdout.splitlines(), 1)]
    return records, [read(folder / "trace" / name_file(rank)) for rank in range(RANKS)]


def find_event(records, name):
    (event,) = [record for record in records if isinstance(record, Event) and record.name == name]
    return event


def list_spans(traces, track):
    return [span for trace in traces for span in trace.spans if span.track == track]


def sum_seconds(spans):
    return sum(span.end - span.begin for span in spans)


def test_the_log_counts_the_spans(traced):
    records, traces = traced
    event = find_event(records, "trace")
    assert (event.from_step, event.to_step, event.left_out) == (FIRST, LAST, 0)
    assert event.spans == sum(len(trace.spans) for trace in traces)
    assert all(trace.steps() == [FIRST, FIRST + 1, LAST] for trace in traces)
    steps = [record for record in records if isinstance(record, Step) and record.step >= FIRST]
    step_seconds = [span.end - span.begin for span in traces[0].spans if span.name == STEP]
    assert step_seconds == pytest.approx([step.seconds for step in steps], abs=2e-6), "of the first rank"


def test_calls_and_codec_spans_add_up_to_the_counters_of_their_channel(traced):
    records, traces = traced
    coded = defaultdict(float)
    for span in list_spans(traces, CODEC):
        coded[span.name, span.about["channel"]] += span.end - span.begin
    channels = {f"{c.dimension} {c.phase} {c.kind}": c for c in find_event(records, "traffic").channels}
    assert {"DP BACKWARD GRAD", "ZERO STEP PARAM", "PP FORWARD ACT", "PP BACKWARD GRAD"} <= set(channels)
    for channel_name, channel in channels.items():
        calls = list_spans(traces, channel_name)
        assert len(calls) == channel.calls, channel_name
        assert sum(span.about["message_bytes"] for span in calls) == channel.message_bytes
        assert sum(span.about["wire_bytes"] for span in calls) == channel.wire_bytes
        for what in ("encode", "decode"):
            assert coded[what, channel_name] == pytest.approx(getattr(channel, f"{what}_s"), abs=1e-5), (
                what,
                channel_name,
            )
        waits = [
            span for span in list_spans(traces, STEPS) if span.name == WAIT and span.about["channel"] == channel_name
        ]
        assert sum_seconds(waits) >= channel.exposed_s - 1e-5, "exposed time is part of the waits"
    assert coded["encode", "PP FORWARD ACT"] > 0


def test_phases_equal_those_of_the_log_and_lie_within_their_step(traced):
    records, traces = traced
    by_stage = {stage.stage: stage for stage in find_event(records, "phases").stages}
    for stage, pair in ((0, traces[:2]), (1, traces[2:])):
        step_spans = list_spans(pair, STEPS)
        means = {
            name: sum_seconds(s for s in step_spans if s.name == name) / 6
            for name in {span.name for span in step_spans}
        }
        for name in ("reduction", "optimizer", "bubble"):
            assert means[name] == pytest.approx(getattr(by_stage[stage], f"{name}_s"), abs=1e-5), name
        passes = by_stage[stage].forward_s + by_stage[stage].backward_s + by_stage[stage].bubble_s
        assert means["forward"] + means["backward"] == pytest.approx(passes, abs=1e-5), "the passes contain the bubble"
        assert {span.about["micro_batch"] for span in step_spans if span.name == "forward"} == {0, 1, 2, 3}
    for trace in traces:
        steps = {span.step: span for span in trace.spans if span.name == STEP}
        for span in trace.spans:
            assert steps[span.step].begin - 1e-9 <= span.begin <= span.end <= steps[span.step].end + 1e-6


def test_nothing_is_received_before_it_was_sent(traced):
    """Clocks that differ by 1000 s are aligned with an error below the shortest round trip."""
    _, traces = traced
    for rank, trace in enumerate(traces):
        assert trace.before.ahead == pytest.approx(AHEAD * rank, abs=trace.before.error + 1e-9)
        assert trace.after.ahead == pytest.approx(AHEAD * rank, abs=trace.after.error + 1e-9)

    def find_times(trace, name, step):
        (span,) = (s for s in trace.spans if s.name == name and s.step == step and s.about.get("micro_batch") == 0)
        return span.begin - trace.ahead(span.begin), span.end - trace.ahead(span.end)

    for first, second in ((0, 2), (1, 3)):  # the stages of a replica
        error = traces[first].error + traces[second].error
        for step in (FIRST, LAST):
            sent, _ = find_times(traces[first], "forward", step)
            _, received = find_times(traces[second], "forward", step)
            assert received > sent - error
            sent, _ = find_times(traces[second], "backward", step)
            _, received = find_times(traces[first], "backward", step)
            assert received > sent - error
