"""Tests of a complete run on one rank, whose output is read by the collector."""

import io
import json
import math
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import small_runs
import torch
from mpi4py import MPI
from published_zero import count_link_bytes
from small_runs import TRAIN

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract import step_line
from hpcbench.contract.events import Event, MemoryUse
from hpcbench.contract.experts import Experts
from hpcbench.contract.log_line import parse
from hpcbench.contract.step_line import QUANTITIES, Step
from hpcbench.predict import zero as predicted
from hpcbench.train import text
from hpcbench.train.facts import facts
from hpcbench.train.log import LogWriter
from hpcbench.train.loop import train
from hpcbench.train.trainer import Trainer

RUN = small_runs.RUN.changed(
    study="loop", oversubscribe=False, train=TRAIN.changed(global_batch=2, lr=1e-2, min_lr=1e-3, eval_every=2)
)


@pytest.fixture(scope="module")
def corpus():
    return text.load(RUN.data, RUN.train.seq_len)


def run_of(corpus, **settings):
    run = RUN.changed(train=RUN.train.changed(**settings))
    return Trainer(run, MPI.COMM_SELF.Dup(), Progress(Wait.SPIN), corpus)


def logged(trainer, **meters):
    stream = io.StringIO()
    outcome = train(trainer, LogWriter(stream), **meters)
    records = [parse(line, i) for i, line in enumerate(stream.getvalue().splitlines(), 1)]
    return outcome, records


def test_collector_reads_every_line_that_the_worker_writes(corpus):
    outcome, records = logged(run_of(corpus))
    assert outcome == ("completed", "", 4)
    steps = [record for record in records if isinstance(record, Step)]
    assert [record.step for record in steps] == [1, 2, 3, 4]
    for record in steps:
        printed = {quantity.name for quantity in QUANTITIES if getattr(record, quantity.name) is not None}
        assert printed == {quantity.name for quantity in QUANTITIES if quantity.printed} - {"loss_scale"}, (
            "only fp16 scales the loss"
        )
        assert record.samples_per_s == pytest.approx(2 / record.seconds, rel=1e-2)
        assert record.message_bytes == record.wire_bytes == 0
    events = [record for record in records if isinstance(record, Event)]
    assert [event.name for event in events] == ["evaluation", "traffic", "phases", "memory", "evaluation"]
    assert len(steps) + len(events) == len(records)
    assert steps[-1].loss < steps[0].loss


def logged_with(trainer, **meters):
    """Return the raw events by name."""
    _, records = logged(trainer, **meters)
    return {record.name: record.raw for record in records if isinstance(record, Event)}


@pytest.mark.parametrize(("zero", "micro_batches"), [(1, 1), (2, 2)])
def test_transfers_over_the_hosts_link_and_lasting_memory_are_as_predicted(corpus, zero, micro_batches):
    """Only counted steps are compared, because loading weights also uses the link to the host."""
    trainer = run_of(corpus, offload=True, zero=zero, micro_batch=2 // micro_batches, bucket_mb=0.02)
    trainer.load(trainer.state())
    trainer.data_parallel.link.up(torch.ones(1000))
    logged = logged_with(trainer)
    lengths = [piece.bucket.values.numel() for piece in trainer.data_parallel.pieces]
    assert len(lengths) > 1
    down, up = count_link_bytes(zero, lengths, 1, master=4, micro_batches=micro_batches)
    crossed = logged["traffic"]
    steps = crossed["to_step"] - crossed["from_step"] + 1
    assert steps == 3
    assert (crossed["host_down_bytes"], crossed["host_up_bytes"]) == (steps * down, steps * up)
    states = predicted.count_state_bytes(zero, lengths, 1, parameter=4, master=4, offload=True)
    assert {f"{what.replace(' ', '_')}_bytes": held for what, held in states.items()}.items() <= logged[
        "memory"
    ].items()


def test_the_page_names_all_contents_of_the_last_lines(corpus):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "logs.md").read_text()
    logged = logged_with(run_of(corpus, offload=True)) | {"configuration": {"run": {}, **facts(RUN, corpus)}}
    for name in ("traffic", "phases", "memory", "configuration"):
        assert f"| `{name}` |" in page
        fields = {*logged[name], *(key for stage in logged[name].get("stages", ()) for key in stage)} - {"event"}
        assert {key for key in fields if f"`{key}`" not in page} == set()
    assert {key for key in MemoryUse.LASTING if f"`{key}`" not in page} == set()


@pytest.mark.parametrize("recompute", ["none", "selective", "full", 2])
def test_the_log_names_the_formula_of_each_count(corpus, recompute):
    """Each formula must evaluate to the logged number."""
    run_facts = facts(RUN.changed(train=RUN.train.changed(recompute=recompute)), corpus)
    sizes = {"s": 16, "l": 1, "h": 16, "V": 256, "f": 3 if recompute in ("none", "selective") else 4}
    for kind, explanation in run_facts["flops_formulas"].items():
        framework, _, formula = explanation.partition(": ")
        assert framework == ("GPT-NeoX" if kind == "neox" else "Megatron-LM")
        value = evaluated(formula.split(", ")[0], sizes)
        assert value == pytest.approx(run_facts[f"{kind}_flops_per_sample"], rel=1e-12), explanation


def evaluated(formula, sizes):
    """Evaluate a formula in which adjacent values are multiplied."""
    tokens = re.findall(r"[0-9]+|[A-Za-z]|[+/^()]", formula)
    pairs = zip(["(", *tokens], tokens, strict=False)
    times = [before.isalnum() + (before == ")") and token.isalnum() + (token == "(") for before, token in pairs]
    code = "".join(f"{'*' if repeated else ''}{token}" for repeated, token in zip(times, tokens, strict=True))
    return eval(code.replace("^", "**"), {}, sizes)


def test_every_field_of_a_step_survives_the_log():
    step = Step(
        step=3,
        steps=9,
        loss=math.nan,
        seconds=0.25,
        samples_per_s=8.0,
        model_flops_per_rank=1.25e9,
        hardware_flops_per_rank=2.5e9,
        lr=1e-3,
        gradient_norm=math.inf,
        loss_scale=2.0**16,
        message_bytes=10**13,
        wire_bytes=3 * 10**12,
        skipped=2,
        line=1,
    )
    assert {quantity.name for quantity in QUANTITIES if quantity.printed} <= {
        name for name, value in vars(step).items() if value
    }
    record = parse(step_line.format_step(step), 1)
    assert isinstance(record, Step)
    written = asdict(step)
    read = asdict(record)
    assert math.isnan(read.pop("loss")) and math.isnan(written.pop("loss"))
    assert read == pytest.approx(written)


def test_absurd_learning_rate_is_called_a_nan(corpus):
    (state, reason, steps), records = logged(run_of(corpus, lr=1e30))
    assert (state, reason, steps) == ("nan", "loss is nan at step 2", 2)
    assert math.isnan(records[-1].loss)


def test_gradients_that_are_finite_with_no_loss_scale_end_the_run(corpus, monkeypatch):
    trainer = run_of(corpus, precision="fp16", steps=40)
    monkeypatch.setattr(trainer.data_parallel, "gradient_norm", lambda: math.nan)
    (state, reason, steps), records = logged(trainer)
    assert (state, reason, steps) == ("nan", "gradient norm is not finite at step 14", 14)
    scales = [record.loss_scale for record in records if isinstance(record, Step)]
    assert scales == [2.0**12, *(2.0**k for k in range(12, -1, -1))]


def test_the_log_lists_the_parameters_that_one_bit_adam_will_never_update(corpus):
    trainer = run_of(corpus, optimizer="onebit-adam", freeze_step=2, zero=0, clip=0.0)
    _, records = logged(trainer)
    (event,) = [record.raw for record in records if isinstance(record, Event) and record.name == "variance_frozen"]
    variances = (piece.adam.second[: piece.bucket.padding.start] for piece in trainer.data_parallel.pieces)
    zeros = sum(int((variance == 0).sum()) for variance in variances)
    assert event["step"] == 2 and event["elements"] == facts(RUN, corpus)["parameters"]
    assert event["without_gradient"] == zeros > 0
    norms = [record.gradient_norm for record in records if isinstance(record, Step)]
    assert min(norms[:2]) > 0 and set(norms[2:]) == {None}, "after the freeze no rank has the mean gradient"


def test_one_bit_adam_refuses_to_clip_without_a_norm(corpus):
    trainer = run_of(corpus, optimizer="onebit-adam", freeze_step=2, zero=0, clip=1.0)
    with pytest.raises(ValueError, match="1-bit Adam does not compute the norm of the mean gradient"):
        trainer.step(0)


@pytest.mark.parametrize(("capacity", "drops"), [(0.5, True), (4.0, False)])
def test_step_lines_have_the_operations_of_the_tokens_that_experts_kept(corpus, monkeypatch, capacity, drops):
    """Two samples of 16 tokens select 2 experts per token, so each step has 64 rows."""
    lines = []
    monkeypatch.setattr(LogWriter, "step", lambda self, step: lines.append(step))
    run = RUN.changed(model=RUN.model.changed(experts=Experts(count=4, top=2, capacity=capacity, min_capacity=1)))
    trainer = Trainer(run, MPI.COMM_SELF.Dup(), Progress(Wait.SPIN), corpus)
    (layer,) = logged_with(trainer)["experts"]["layers"]
    counted = lines[run.train.warmup_steps :]
    assert sum(layer["tokens"]) == 64 * len(counted) and (layer["dropped"] > 0) == drops
    tokens = sum(layer["tokens"]) - layer["dropped"]
    dense = facts(RUN, corpus)["model_flops_per_sample"]
    router = 2 * 16 * 4 * 16
    expected = 2 * len(counted) * (dense + 3 * router) + 3 * (tokens - 2 * 16 * len(counted)) * 16 * 16**2
    for each in ("model_flops_per_rank", "hardware_flops_per_rank"):
        assert sum(getattr(line, each) * line.seconds for line in counted) == pytest.approx(expected, rel=1e-9)


def test_replicas_that_differ_fail_the_run(corpus, monkeypatch):
    trainer = run_of(corpus)
    monkeypatch.setattr("hpcbench.train.loop.replicas_agree", lambda trainer: False)
    (state, reason, _), _ = logged(trainer)
    assert state == "failed"
    assert "replicas have different weights" in reason


def test_configuration_event_is_json_with_the_model(corpus):
    configuration = json.loads(json.dumps(facts(RUN, corpus)))
    assert configuration["parameters"] == 12 * 16**2 + 13 * 16 + 2 * 256 * 16 + 2 * 16
    assert configuration["valid_loss_unigram"] < configuration["valid_loss_uniform"] == pytest.approx(math.log(256))
