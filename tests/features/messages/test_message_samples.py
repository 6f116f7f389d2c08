"""Tests that sample files contain exactly what each rank sent, and name the tensors of each message."""

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from test_stop_and_resume import RUN
from torch import nn

from hpcbench.codecs.registry import get_codec
from hpcbench.contract import message_samples
from hpcbench.contract.events import Event
from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout
from hpcbench.contract.log_line import parse
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.training import CommPrecision, Data
from hpcbench.features.messages.events import MessagesKept
from hpcbench.features.messages.settings import MessageSamples
from hpcbench.parallel.buckets import Bucket
from hpcbench.parallel.sharding import Held, Shard

WORKER = Path(__file__).with_name("sampling_worker.py")
RANKS, EACH, STEPS = 4, 3, [1, 3]
LAYOUTS = {
    "positions": {"layout": Layout(cp=2, pp=2), "model": RUN.model.changed(layers=2)},
    "experts": {"layout": Layout(dp=2, ep=2, tp=2), "model": RUN.model.changed(experts=Experts(count=2))},
}
ALWAYS = {"DP BACKWARD GRAD", "ZERO STEP PARAM"}
CHANNELS = {
    "positions": ALWAYS | {f"{name} {what}" for name in ("CP", "PP") for what in ("FORWARD ACT", "BACKWARD GRAD")},
    "experts": ALWAYS | {f"{name} {what}" for name in ("TP", "EP") for what in ("FORWARD ACT", "BACKWARD GRAD")},
}


@pytest.fixture(scope="module", params=LAYOUTS)
def run(request, tmp_path_factory, mpi_run):
    """Return the layout name, the log, the sample files by (step, rank), and the recorded calls by rank."""
    folder = tmp_path_factory.mktemp(request.param)
    text = folder / "text"
    text.write_bytes(bytes(range(256)) * 1500)
    run = RUN.changed(
        data=Data(source="file", path=str(text), valid_fraction=0.5),
        train=RUN.train.changed(
            steps=3,
            warmup_steps=1,
            global_batch=8,
            keep_messages=MessageSamples(steps=STEPS, each=EACH),
            comm_precision=CommPrecision(activations="bf16"),
        ),
        scheme=NamedScheme(name="zfp", algorithm="two-shot", default="zfp:8"),
        ranks=RANKS,
        **LAYOUTS[request.param],
    )
    (folder / "run.json").write_text(json.dumps(run.content()))
    done = mpi_run(RANKS, WORKER, str(folder / "run.json"), str(folder))
    assert done.returncode == 0, done.stderr
    log = [parse(line, i) for i, line in enumerate(done.stdout.splitlines(), 1)]
    files = {
        (step, rank): message_samples.read_samples(
            folder / message_samples.DIRECTORY / message_samples.name_file(step, rank)
        )
        for step in STEPS
        for rank in range(RANKS)
    }
    assert len(list((folder / message_samples.DIRECTORY).iterdir())) == len(files), (
        "no other file, and no unfinished one"
    )
    calls = [pickle.loads((folder / f"seen-{rank}").read_bytes()) for rank in range(RANKS)]
    return request.param, log, files, calls


def list_wrong_messages(files, calls):
    """List sampled messages that differ from the recorded calls, as (step, rank, channel, place)."""
    wrong_messages = []
    for (step, rank), file in files.items():
        for message in file.messages:
            sent = [call for call in calls[rank] if call[:2] == (step, message.channel)]
            _, _, operation, values = sent[message.place]
            dtype = ml_dtypes.bfloat16 if message.dtype == "bfloat16" else np.float32
            same = values.astype(dtype).tobytes() == message.values
            if not same or operation != message.operation or message.size != values.size:
                wrong_messages.append((step, rank, message.channel, message.place))
    return wrong_messages


def test_files_contain_what_ranks_sent(run):
    name, _, files, calls = run
    assert not list_wrong_messages(files, calls)
    assert {message.channel for file in files.values() for message in file.messages} == CHANNELS[name]
    types = {m.channel.split()[0]: m.dtype for file in files.values() for m in file.messages}
    assert types.pop("DP") == types.pop("ZERO") == "float32"
    assert set(types.values()) == {"bfloat16"}, "the dtype on the wire"


@pytest.mark.parametrize("fault", ["decoded", "step", "rank"])
def test_wrong_messages_are_detected(run, fault):
    """The planted wrong messages contain decoded values, or values of another step or rank."""
    _, _, files, calls = run
    if fault == "decoded":
        files = {key: replace(file, messages=tuple(map(decode_message, file.messages))) for key, file in files.items()}
    elif fault == "step":
        files = {(step, rank): files[STEPS[0] + STEPS[1] - step, rank] for step, rank in files}
    else:
        files = {(step, rank): files[step, rank ^ 1] for step, rank in files}
    faulty = {(step, channel) for step, _, channel, _ in list_wrong_messages(files, calls)}
    assert {step for step, _ in faulty} == set(STEPS)
    assert {channel for _, channel in faulty} >= {"DP BACKWARD GRAD", "ZERO STEP PARAM"}


def decode_message(message):
    dtype = ml_dtypes.bfloat16 if message.dtype == "bfloat16" else np.float32
    x = np.frombuffer(message.values, dtype)
    codec = get_codec("zfp:8")
    wire, out = np.empty(codec.wire_bytes(x.size, x.dtype), np.uint8), np.empty_like(x)
    codec.decode(wire[: codec.encode(x, wire)], out)
    return replace(message, values=out.tobytes())


def test_samples_extend_from_the_first_message_of_a_step_to_the_last(run):
    """Sampled messages are spread evenly, based on the message count of the previous step.

    The first sampled step has no previous step, so its first messages are sampled.
    """
    _, _, files, calls = run
    for (step, rank), file in files.items():
        for channel in {message.channel for message in file.messages}:
            places = [message.place for message in file.messages if message.channel == channel]
            count = sum(call[:2] == (step, channel) for call in calls[rank])
            assert len(places) == min(EACH, count)
            assert places[0] == 0 and (places[-1] == count - 1 if step > 1 else places == list(range(len(places))))


def test_messages_name_their_tensors(run):
    _, _, files, _ = run
    for file in files.values():
        for message in file.messages:
            ends = [part.begin + math.prod(part.shape) for part in message.parts]
            assert message.parts and max(ends) <= message.size
            if message.channel == "DP BACKWARD GRAD":
                assert all(part.name for part in message.parts) and any(len(part.shape) == 2 for part in message.parts)
            elif not message.channel.startswith("ZERO"):
                (part,) = message.parts
                assert ends == [message.size] and (part.name, len(part.shape) > 1) == ("", True)
            if message.channel.split()[0] in ("PP", "TP"):
                assert len(message.parts[0].shape) == 3 and message.parts[0].shape[-1] == RUN.model.hidden


def test_the_log_counts_the_samples(run):
    _, log, files, _ = run
    events = [record for record in log if isinstance(record, Event) and record.name == MessagesKept.NAME]
    assert [event.step for event in events] == STEPS
    for event in events:
        sampled = [message for (step, _), file in files.items() if step == event.step for message in file.messages]
        assert (event.messages, event.left_out) == (len(sampled), 0)
        assert event.bytes == sum(len(message.values) for message in sampled)


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_bucket_names_the_rows_in_each_piece(pieces):
    shapes = {"a": (5, 7), "b": (3,), "c": (4, 6)}
    held = []
    for k, (name, shape) in enumerate(shapes.items()):
        values = torch.arange(math.prod(shape), dtype=torch.float32).view(shape) + 1000 * k
        held.append(Held(nn.Parameter(values), Shard(name, shape)))
    parameters = {item.shard.name: item.parameter.detach().clone() for item in held}
    bucket = Bucket(held, pieces)
    rows = dict.fromkeys(shapes, 0)
    for owned in cut_evenly(bucket.values.numel(), pieces):
        values = bucket.values[owned]
        for part in bucket.list_message_parts(owned if pieces > 1 else None):
            sampled = values[part.begin : part.begin + math.prod(part.shape)].view(part.shape)
            parameter = parameters[part.name]
            starts = [k for k in range(len(parameter)) if torch.equal(parameter[k : k + len(sampled)], sampled)]
            assert len(starts) == 1, "consecutive rows of the parameter"
            rows[part.name] += len(sampled)
    missing = {name: len(parameters[name]) - n for name, n in rows.items()}
    assert all(0 <= n <= pieces - 1 for n in missing.values()), "only the row that a border cuts is left out"
    assert missing["b"] == 0
