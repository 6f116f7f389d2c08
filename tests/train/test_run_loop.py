"""A run from first step to last on one rank: what the worker writes is what the collector reads."""

import io
import json
import math
from dataclasses import asdict, fields, replace

import pytest
from mpi4py import MPI

from hpcbench.collect.lines import Event, StepRecord, parse
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.parallel.layout import Layout
from hpcbench.train import text
from hpcbench.train.__main__ import facts, train
from hpcbench.train.config import Data, Model, Run, Scheme, Train
from hpcbench.train.log import RunLog, Step
from hpcbench.train.trainer import Trainer

RUN = Run(
    schema=1,
    study="loop",
    site="local",
    run="r1-baseline",
    repeat=1,
    pairing="r1",
    cell={},
    model=Model("mini", 1, 16, 2, 256, "rotary", 0.5, parallel_residual=True, tied=False),
    data=Data("stdlib", None, 0.1),
    train=Train(4, 1, 2, 1, 16, "fp32", 1, 1, 1e-2, 1e-3, 0.9, 0.95, 1e-8, 0.01, 1.0, 4.0, True, 2, 4),
    layout=Layout(),
    scheme=Scheme("baseline", "native", "none", []),
    ranks=1,
    threads=1,
    oversubscribe=False,
    device="cpu",
    links=None,
)


@pytest.fixture(scope="module")
def corpus():
    return text.load(RUN.data, RUN.train.seq_len)


def run_of(corpus, **settings):
    run = replace(RUN, train=replace(RUN.train, **settings))
    return Trainer(run, MPI.COMM_SELF.Dup(), Progress(Wait.SPIN), corpus)


def logged(trainer):
    stream = io.StringIO()
    outcome = train(trainer, RunLog(stream))
    records = [parse(line, i) for i, line in enumerate(stream.getvalue().splitlines(), 1)]
    return outcome, records


def test_collector_reads_every_line_that_the_worker_writes(corpus):
    outcome, records = logged(run_of(corpus))
    assert outcome == ("completed", "", 4)
    steps = [record for record in records if isinstance(record, StepRecord)]
    assert [record.step for record in steps] == [1, 2, 3, 4]
    for record in steps:
        said = {field.name for field in fields(Step) if getattr(record, field.name) is not None}
        assert said == {field.name for field in fields(Step)} - {"loss_scale"}, "only fp16 scales the loss"
        assert record.samples_per_s == pytest.approx(2 / record.seconds, rel=1e-2)
        assert record.message_bytes == record.wire_bytes == 0
    events = [record for record in records if isinstance(record, Event)]
    assert [event.name for event in events] == ["evaluation", "traffic", "phases", "memory", "evaluation"]
    assert len(steps) + len(events) == len(records)
    assert steps[-1].loss < steps[0].loss


def test_every_field_of_a_step_survives_the_way_through_the_log():
    step = Step(3, 9, math.nan, 0.25, 8.0, 1.25e9, 2.5e9, 1e-3, math.inf, 10**13, 3 * 10**12, 2, 2.0**16)
    record = parse(step.line(), 1)
    assert isinstance(record, StepRecord)
    written = asdict(step)
    read = {name: getattr(record, name) for name in written}
    assert math.isnan(read.pop("loss")) and math.isnan(written.pop("loss"))
    assert read == pytest.approx(written)


def test_absurd_learning_rate_is_called_a_nan(corpus):
    (state, reason, steps), records = logged(run_of(corpus, lr=1e30))
    assert (state, reason, steps) == ("nan", "loss is nan at step 2", 2)
    assert math.isnan(records[-1].loss)


def test_replicas_that_differ_fail_the_run(corpus, monkeypatch):
    trainer = run_of(corpus)
    monkeypatch.setattr(trainer, "replicas_agree", lambda: False)
    (state, reason, _), _ = logged(trainer)
    assert state == "failed"
    assert "replicas hold different weights" in reason


def test_configuration_event_is_json_and_knows_the_model(corpus):
    known = json.loads(json.dumps(facts(RUN, corpus)))
    assert known["parameters"] == 12 * 16**2 + 13 * 16 + 2 * 256 * 16 + 2 * 16
    assert known["valid_loss_unigram"] < known["valid_loss_uniform"] == pytest.approx(math.log(256))
