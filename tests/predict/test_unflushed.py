"""Tests of predictions of pipelines without a flush: no bubble, the formula for stashed weights, and header traffic."""

from dataclasses import replace

import pytest

from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Model
from hpcbench.parallel.stream import Stream
from hpcbench.predict.machine import make_gpu_machine
from hpcbench.predict.memory import predict_memory
from hpcbench.predict.step import StepModel
from hpcbench.predict.volume import count_step_bytes
from hpcbench.predict.workload import Workload, make_train

MODEL = Model(layers=16, hidden=2048, heads=16, vocab=50304)
P, M = 4, 8


def workload(schedule, m=M, **settings):
    train = make_train(global_batch=m, micro_batch=1, seq_len=1024, clip=0.0, schedule=schedule, **settings)
    return Workload(MODEL, train, Layout(pp=P, stages=[4, 4, 4, 4]), 8)


@pytest.fixture(scope="module")
def machine():
    return make_gpu_machine("A100", node_gbit=200)


@pytest.mark.parametrize("schedule", ["pipedream", "pipedream-2bw"])
def test_a_step_takes_what_its_slowest_stage_takes(machine, schedule):
    flushed, result = (StepModel(workload(name), machine).run() for name in ("1f1b", schedule))
    assert flushed.parts["bubble"] > 0 and result.parts["bubble"] == 0
    passes = result.parts["forward"] + result.parts["backward"]
    assert result.seconds.value < flushed.seconds.value
    assert result.seconds.value == pytest.approx(
        passes + sum(seconds for name, seconds in result.parts.items() if name not in ("forward", "backward"))
    )
    assert result.parts["pipeline"] < 0.05 * passes, "a full pipeline waits for nothing"


def test_stashes_are_versions_of_the_stage(machine):
    for m, schedule, vertical in ((1, "pipedream", False), (8, "pipedream", True), (8, "pipedream-2bw", False)):
        item = workload(schedule, m, vertical_sync=vertical)
        stream = Stream.of(item.train, stages=P, micro_batches=m)
        result = predict_memory(item, None)
        kinds = result.peaks[result.peak]
        assert kinds["stashes"] == (stream.versions(result.rank) - 1) * kinds["weights"] > 0
    assert predict_memory(workload("1f1b"), None).peaks["before backward"]["stashes"] == 0


def test_headers_have_no_codec_under_any_scheme(machine):
    coded = NamedScheme(name="coded", algorithm="encoded", default="int8:256", rules=[])
    channels = StepModel(replace(workload("pipedream"), scheme=coded), machine).run().channels
    header, message = channels["EXACT", "FORWARD", "ACT"], channels["PP", "FORWARD", "ACT"]
    assert header.wire_bytes == pytest.approx(header.message_bytes) and message.wire_bytes < 0.6 * message.message_bytes


def test_headers_are_traffic_and_the_norm_is_not():
    result, flushed = (count_step_bytes(MODEL, workload(name).train, Layout(pp=P), 1) for name in ("pipedream", "1f1b"))
    assert result["EXACT", "FORWARD", "ACT"] == M * 16
    assert ("EXACT", "STEP", "OPTIM") in flushed and ("EXACT", "STEP", "OPTIM") not in result
    shared = {key: nbytes for key, nbytes in result.items() if key[0] != "EXACT"}
    assert shared == {key: nbytes for key, nbytes in flushed.items() if key[0] != "EXACT"}
