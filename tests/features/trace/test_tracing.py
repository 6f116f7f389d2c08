"""A traced run: its spans add up to what the log says of the same steps, and its ranks come on one clock."""

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
    """Log and traces of 4 ranks, two stages with two replicas each, whose clocks differ by 1000 s. The traced steps are
    those that the log's last events count."""
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


def event(records, name):
    (event_of_name,) = [record for record in records if isinstance(record, Event) and record.name == name]
    return event_of_name


def spans_of(traces, track):
    return [span for trace in traces for span in trace.spans if span.track == track]


def seconds(spans):
    return sum(span.end - span.begin for span in spans)


def test_the_log_says_what_was_written(traced):
    records, traces = traced
    written = event(records, "trace")
    assert (written.from_step, written.to_step, written.left_out) == (FIRST, LAST, 0)
    assert written.spans == sum(len(trace.spans) for trace in traces)
    assert all(trace.steps() == [FIRST, FIRST + 1, LAST] for trace in traces)
    steps = [record for record in records if isinstance(record, Step) and record.step >= FIRST]
    step_seconds = [span.end - span.begin for span in traces[0].spans if span.name == STEP]
    assert step_seconds == pytest.approx([step.seconds for step in steps], abs=2e-6), "of the first rank"


def test_calls_and_the_codecs_work_add_up_to_the_channels_counters(traced):
    records, traces = traced
    coded = defaultdict(float)
    for span in spans_of(traces, CODEC):
        coded[span.name, span.about["channel"]] += span.end - span.begin
    channels = {f"{c.dimension} {c.phase} {c.kind}": c for c in event(records, "traffic").channels}
    assert {"DP BACKWARD GRAD", "ZERO STEP PARAM", "PP FORWARD ACT", "PP BACKWARD GRAD"} <= set(channels)
    for channel_name, channel in channels.items():
        calls = spans_of(traces, channel_name)
        assert len(calls) == channel.calls, channel_name
        assert sum(span.about["message_bytes"] for span in calls) == channel.message_bytes
        assert sum(span.about["wire_bytes"] for span in calls) == channel.wire_bytes
        for what in ("encode", "decode"):
            assert coded[what, channel_name] == pytest.approx(getattr(channel, f"{what}_s"), abs=1e-5), (
                what,
                channel_name,
            )
        waits = [
            span for span in spans_of(traces, STEPS) if span.name == WAIT and span.about["channel"] == channel_name
        ]
        assert seconds(waits) >= channel.exposed_s - 1e-5, "what was exposed was waited for"
    assert coded["encode", "PP FORWARD ACT"] > 0


def test_phases_are_those_of_the_log_and_lie_within_their_step(traced):
    records, traces = traced
    by_stage = {stage.stage: stage for stage in event(records, "phases").stages}
    for stage, pair in ((0, traces[:2]), (1, traces[2:])):
        step_spans = spans_of(pair, STEPS)
        means = {
            name: seconds(s for s in step_spans if s.name == name) / 6 for name in {span.name for span in step_spans}
        }
        for name in ("reduction", "optimizer", "bubble"):
            assert means[name] == pytest.approx(getattr(by_stage[stage], f"{name}_s"), abs=1e-5), name
        passes = by_stage[stage].forward_s + by_stage[stage].backward_s + by_stage[stage].bubble_s
        assert means["forward"] + means["backward"] == pytest.approx(passes, abs=1e-5), "with the bubble in them"
        assert {span.about["micro_batch"] for span in step_spans if span.name == "forward"} == {0, 1, 2, 3}
    for trace in traces:
        steps = {span.step: span for span in trace.spans if span.name == STEP}
        for span in trace.spans:
            assert steps[span.step].begin - 1e-9 <= span.begin <= span.end <= steps[span.step].end + 1e-6


def test_nothing_is_received_before_it_was_sent(traced):
    """On one clock: clocks are 1000 s apart, and the error is below the shortest way there and back."""
    _, traces = traced
    for rank, trace in enumerate(traces):
        assert trace.before.ahead == pytest.approx(AHEAD * rank, abs=trace.before.error + 1e-9)
        assert trace.after.ahead == pytest.approx(AHEAD * rank, abs=trace.after.error + 1e-9)

    def times(trace, name, step):
        first_micro_batch = [
            s for s in trace.spans if s.name == name and s.step == step and s.about.get("micro_batch") == 0
        ]
        (single,) = first_micro_batch
        return single.begin - trace.ahead(single.begin), single.end - trace.ahead(single.end)

    for first, second in ((0, 2), (1, 3)):  # the stages of a replica
        error = traces[first].error + traces[second].error
        for step in (FIRST, LAST):
            sent, _ = times(traces[first], "forward", step)
            _, received = times(traces[second], "forward", step)
            assert received > sent - error
            sent, _ = times(traces[second], "backward", step)
            _, received = times(traces[first], "backward", step)
            assert received > sent - error
