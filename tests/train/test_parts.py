"""Tests of single components of hpcbench.train, without ranks."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import small_runs
import torch
from mpi4py import MPI
from small_runs import NEOX, place_run
from torch import nn

from hpcbench.contract import step_line, text_split
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import RankShape, load
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.step_line import Step
from hpcbench.contract.training import Data
from hpcbench.errors import UserError
from hpcbench.parallel.adamw import AdamW, AdamWState
from hpcbench.parallel.sharding import Cut, Shard
from hpcbench.predict import flops
from hpcbench.train import initial, preflight, text
from hpcbench.train.batches import Batches
from hpcbench.train.learning_rate import learning_rate
from hpcbench.train.model import GPT, rotate
from hpcbench.train.precision import LossScale

MODEL = NEOX.changed(name="tiny", layers=2, heads=4)
TRAIN = small_runs.TRAIN.changed(steps=10, warmup_steps=2, micro_batch=2, eval_samples=8)
SCHEME = NamedScheme(name="h", algorithm="two-shot", default="mpc", rules=[Rule(dimension="DP", codec="zfp:8")])
RUN = place_run(Layout(dp=2, tp=2), run="r1", model=MODEL, train=TRAIN, scheme=SCHEME)


# ---------------------------------------------------------------- run file


def test_run_file_round_trip(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN.content()))
    run, raw = load(path)
    assert run == RUN
    sizes = {"dp": 2, "tp": 2, "pp": 1, "ep": 1, "chunks": 1, "tensor": "1d", "depth": 1, "cp": 1, "context": "ring"}
    assert raw["layout"] == {**sizes, "stages": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.pop("site"), "site: is missing"),
        (lambda r: r["train"].update(stepz=1), r"train.stepz: unknown key \(did you mean 'steps'"),
        (lambda r: r["train"].update(steps="many"), "train.steps: must be a whole number, not 'many'"),
        (lambda r: r["train"].update(steps=True), "train.steps: must be a whole number, not True"),
        (lambda r: r["scheme"]["rules"][0].pop("codec"), "scheme.rules.0.codec: is missing"),
        (lambda r: r.update(model=3), "model: must be a mapping, not 3"),
        (lambda r: r["layout"].update(tp=4), "ranks: 4 is not dp x tp x pp = 8"),
        (lambda r: r["layout"].update(tp=3), "layout.tp: 3 does not divide model.heads 4: use one of 1, 2, 4"),
        (
            lambda r: r["train"].update(global_batch=6),
            "train.global_batch: 6 is not a multiple of .* = 4: use 4 or 8",
        ),
        (
            lambda r: r["train"].update(precision="fp8"),
            "train.precision: must be 'fp64', .*, not 'fp8'",
        ),
        (lambda r: r.update(schema=2), "schema: must be 1, not 2"),
        (lambda r: r["layout"].update(chunks=2), "layout.chunks: 2 chunks, but layout.pp is 1"),
        (
            lambda r: r["layout"].update(stages=[1]),
            "layout.stages: .* = 1 parts with model.layers 2",
        ),
        (lambda r: r["layout"].update(stages=["2"]), "layout.stages.0: must be a whole number, not '2'"),
        (
            lambda r: r["train"].update(schedule="1b1f"),
            "train.schedule: must be 'gpipe', .* not '1b1f'",
        ),
        (lambda r: r["train"].update(schedule="interleaved"), "train.schedule: interleaved with layout.chunks 1"),
        (lambda r: r["train"].update(recompute=0), "train.recompute: must be 'none', 'selective' or 'full', not 0"),
        (
            lambda r: r["train"].update(recompute=True),
            "train.recompute: must be 'none', .* not True",
        ),
    ],
)
def test_wrong_run_file_is_one_line(tmp_path, change, message):
    raw = RUN.content()
    change(raw)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(UserError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_requested_shape_is_in_the_run_file(tmp_path):
    path = tmp_path / "run.json"
    asked = {"nodes": 1, "ranks_per_node": 4, "cores_per_rank": 1, "gpus_per_rank": "1/2", "visibility": "one"}
    raw = {**RUN.content(), "shape": asked}
    path.write_text(json.dumps(raw))
    assert load(path)[0].shape == RankShape(**asked)
    for change, message in (
        ({"gpus_per_rank": "half"}, "shape.gpus_per_rank: 'half' is not a number of GPUs"),
        ({"gpus_per_rank": 1}, "shape.gpus_per_rank: must be text, not 1"),
        ({"nodez": 1}, r"shape.nodez: unknown key \(did you mean 'nodes'"),
    ):
        path.write_text(json.dumps({**raw, "shape": {**asked, **change}}))
        with pytest.raises(UserError, match=message):
            load(path)
    path.write_text(json.dumps({**raw, "links": {}}))
    with pytest.raises(UserError, match=r"links: must be text, not \{\}"):
        load(path)


@pytest.mark.parametrize("content", [None, b"{", b"\xff\xfe", b"[1]"])
def test_unreadable_run_file_is_one_line(tmp_path, content):
    path = tmp_path / "run.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"run\.json"):
        load(path)


# ---------------------------------------------------------------- initial weights


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("dim", [0, 1])
def test_initial_weights_do_not_depend_on_the_layout(count, dim):
    def part(shard):
        return initial.values(shard.name, shard.shape, held=shard.held, config=MODEL, seed=5, dtype=torch.float64)

    name, shape = "blocks.0.mlp.up.weight", (128, 32)
    full = part(Shard(name, shape))
    cuts = [tuple(Cut(index, count) if d == dim else Cut(0, 1) for d in (0, 1)) for index in range(count)]
    parts = [part(Shard(name, shape, cut)) for cut in cuts]
    assert torch.equal(torch.cat(parts, dim), full)
    assert abs(float(full.std()) / initial.spread(name, MODEL) - 1) < 0.05
    assert not torch.equal(full, part(Shard("blocks.1.mlp.up.weight", shape)))


def test_counter_based_normals_are_normal():
    x = initial.normal(123, np.arange(200_000, dtype=np.uint64))
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1) < 0.01
    assert abs((np.abs(x) > 1.959964).mean() - 0.05) < 0.003
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.01


# ---------------------------------------------------------------- model


def test_rotary_positions_make_products_depend_on_distance_only():
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    rotated_q = rotate(q.expand(1, 1, 10, 8), 8, torch.arange(10))[0, 0]
    rotated_k = rotate(k.expand(1, 1, 10, 8), 8, torch.arange(10))[0, 0]
    scores = rotated_q @ rotated_k.T
    for distance in range(9):
        diagonal = scores.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), rtol=1e-12)
    assert not torch.allclose(scores[0, 0], scores[0, 5])


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize("parallel_residual", [True, False])
def test_model_is_causal(positions, parallel_residual):
    torch.manual_seed(0)
    model = GPT(MODEL.changed(positions=positions, parallel_residual=parallel_residual), 16).double()
    nn.init.normal_(model.embedding.tokens.weight)
    tokens = torch.randint(0, 256, (1, 16))
    changed = tokens.clone()
    changed[0, 9] = (changed[0, 9] + 1) % 256
    before, after = model(tokens), model(changed)
    assert torch.equal(before[0, :9], after[0, :9])
    assert not torch.allclose(before[0, 9], after[0, 9])


@pytest.mark.parametrize(("positions", "tied"), [("rotary", False), ("learned", True)])
def test_parameter_formula_counts_the_model(positions, tied):
    model = GPT(MODEL.changed(positions=positions), 16)
    if tied:
        model.head.weight = model.embedding.tokens.weight
    counted = sum(p.numel() for p in model.parameters())
    assert counted == flops.count_parameters(layers=2, hidden=32, vocab=256, seq_len=16, positions=positions, tied=tied)


@pytest.mark.parametrize(
    ("billions", "hidden", "layers"),
    [
        (1.7, 2304, 24),
        (3.6, 3072, 30),
        (7.5, 4096, 36),
        (18.4, 6144, 40),
        (39.1, 8192, 48),
        (76.1, 10240, 60),
        (145.6, 12288, 80),
        (310.1, 16384, 96),
        (529.6, 20480, 105),
        (1008.0, 25600, 128),
    ],
)
def test_parameter_formula_gives_the_published_sizes(billions, hidden, layers):
    """Compare with arXiv 2104.04473, table 1."""
    count = flops.count_parameters(
        layers=layers, hidden=hidden, vocab=51200, seq_len=2048, positions="learned", tied=True
    )
    assert round(count / 1e9, 1) == billions


def test_flops_formulas_agree_with_gpt_neox():
    """GPT-NeoX prints 348.5 TFLOP per sample for its 20B model with recomputation, and 261.4 without."""
    shape = {"layers": 44, "hidden": 6144, "vocab": 50432, "seq_len": 2048}
    with_recompute = flops.count_hardware_flops(**shape, recompute=True)
    assert with_recompute / 1e12 == pytest.approx(348.5, abs=0.1)
    logits = 6 * shape["seq_len"] * shape["hidden"] * shape["vocab"]
    assert flops.count_model_flops(**shape) == pytest.approx((with_recompute - logits) * 3 / 4 + logits)


# ---------------------------------------------------------------- optimizer and schedule


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_equals_pytorchs(decay):
    torch.manual_seed(0)
    settings = AdamW(0.9, 0.95, 1e-8, decay)
    ours = torch.randn(1000, dtype=torch.float64)
    theirs = nn.Parameter(ours.clone())
    oracle = torch.optim.AdamW([theirs], lr=0.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
    state = AdamWState(settings, ours, [slice(0, 1000)])
    for step in range(20):
        gradient = torch.randn(1000, dtype=torch.float64) * 10.0 ** (step % 5 - 3)
        theirs.grad = gradient.clone()
        oracle.param_groups[0]["lr"] = 1e-3 * (step + 1)
        oracle.step()
        state.step(ours, gradient, lr=1e-3 * (step + 1))
    assert torch.allclose(ours, theirs.detach(), rtol=1e-13, atol=0)


def test_learning_rate_warms_up_and_falls_to_its_minimum():
    rates = [learning_rate(step, TRAIN) for step in range(TRAIN.steps)]
    assert rates[:2] == [5e-4, 1e-3]
    assert rates[2] == 1e-3
    assert rates[-1] == pytest.approx(1e-4)
    assert all(a >= b for a, b in pairwise(rates[2:]))


def test_loss_scale_follows_a_scripted_trace():
    scale = LossScale(2.0**12, window=3)
    trace = []
    for overflow in (True, True, True, False, False, False, True, True, False, False, False):
        scale.update(overflow=overflow)
        trace.append(math.log2(scale.value))
    # the first overflow is tolerated, later ones halve; a window without overflow doubles and restores the patience
    assert trace == [12, 11, 10, 10, 10, 11, 11, 10, 10, 10, 11]
    patient = LossScale.of(TRAIN.changed(precision="fp16", loss_scale=64.0, loss_scale_hysteresis=3))
    values = []
    for _ in range(4):
        patient.update(overflow=True)
        values.append(patient.value)
    assert values == [64.0, 64.0, 32.0, 16.0]
    fixed = LossScale.of(TRAIN)
    for _ in range(5000):
        fixed.update(overflow=False)
    assert fixed.value == 1.0


# ---------------------------------------------------------------- text and batches


@pytest.fixture(scope="module")
def corpus():
    return text.load(Data(source="stdlib", valid_fraction=0.1), 16)


def test_no_document_is_in_both_halves(corpus):
    documents = list(text._stdlib())
    halves = {half: [d for d in documents if text_split.is_valid(d, 0.1) is half] for half in (False, True)}
    assert not set(halves[False]) & set(halves[True])
    assert 0.04 < len(halves[True]) / len(documents) < 0.2
    assert len(corpus.valid) > 100_000
    assert 2.5 < corpus.unigram_loss() < corpus.uniform_loss


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_layout_sees_the_same_samples_in_the_same_order(corpus, size):
    def samples(rank, of):
        batches = Batches(corpus, seed=3, seq_len=16, global_batch=8, micro_batch=2, rank=rank, size=of, device="cpu")
        return torch.cat([batch.inputs for batch in batches.train(5)])

    expected = samples(0, 1)
    assert torch.equal(torch.cat([samples(rank, size) for rank in range(size)]), expected)
    assert len(set(map(tuple, expected.tolist()))) == 8


def test_every_step_has_its_own_samples(corpus):
    batches = Batches(corpus, seed=3, seq_len=16, global_batch=8, micro_batch=8, rank=0, size=1, device="cpu")
    seen = [tuple(row) for step in range(5) for batch in batches.train(step) for row in batch.inputs.tolist()]
    assert len(set(seen)) == len(seen) == 40


def test_targets_are_the_inputs_one_later(corpus):
    batches = Batches(corpus, seed=3, seq_len=16, global_batch=4, micro_batch=4, rank=0, size=1, device="cpu")
    (batch,) = batches.train(0)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])


def test_validation_samples_do_not_depend_on_the_seed(corpus):
    def valid(seed):
        batches = Batches(corpus, seed=seed, seq_len=16, global_batch=8, micro_batch=3, rank=0, size=1, device="cpu")
        return [batch.inputs for batch in batches.valid(7)]

    assert [len(batch) for batch in valid(1)] == [3, 3, 1]
    assert all(torch.equal(a, b) for a, b in zip(valid(1), valid(2), strict=True))


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_text_that_cannot_be_used_is_one_line(tmp_path, content):
    path = tmp_path / "text with blanks.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match="text with blanks"):
        text.load(Data(source="file", path=str(path), valid_fraction=0.5), 16)


# ---------------------------------------------------------------- start check and log


def world(ranks, cores, threads=1, host="n1"):
    return [
        {"rank": r, "host": host, "pid": r, "cores": list(range(cores)), "threads": threads, "device": "cpu"}
        for r in range(ranks)
    ]


def test_start_check_accepts_suitable_hosts():
    preflight.check(world(4, 4), RUN.changed(oversubscribe=False))
    preflight.check(world(2, 2, host="n1") + world(2, 2, host="n2"), RUN.changed(oversubscribe=False))
    preflight.check(world(4, 2), RUN)


@pytest.mark.parametrize(
    ("facts", "run", "message"),
    [
        (world(1, 4), RUN, "world of 1 ranks, but the run needs 4"),
        (world(5, 8), RUN, "world of 5 ranks, but the run needs 4"),
        (world(4, 2), RUN.changed(oversubscribe=False), "4 ranks x 1 threads do not fit on 2 cores"),
        (world(4, 4, threads=2), RUN.changed(threads=2), "oversubscribed ranks must have one thread"),
    ],
)
def test_start_check_refuses_wrong_measurements(facts, run, message):
    with pytest.raises(UserError, match=message):
        preflight.check(facts, run)


def test_an_old_pytorch_is_refused(monkeypatch):
    preflight.check(world(4, 4), RUN)
    monkeypatch.setattr(torch, "__version__", "2.4.1+cu121")
    with pytest.raises(UserError, match=r"PyTorch 2\.4\.1\+cu121 is too old for training: install 2\.5 or later"):
        preflight.check(world(4, 4), RUN)


def test_a_rank_without_a_variable_of_the_scheme_is_refused(monkeypatch):
    run = RUN.changed(
        ranks=1,
        scheme=NamedScheme(
            name="mvapich", algorithm="native", default="none", environment={"MPIR_CVAR_X": "a b", "Y": ""}
        ),
    )
    for value, state in ((None, "is unset"), ("a", "is 'a'"), ("a b", None)):
        monkeypatch.setenv("Y", "")
        monkeypatch.delenv("MPIR_CVAR_X", raising=False)
        if value is not None:
            monkeypatch.setenv("MPIR_CVAR_X", value)
        facts = preflight.describe(MPI.COMM_SELF, run)
        if state is None:
            preflight.check(facts, run)
            continue
        with pytest.raises(
            UserError, match=f"rank 0 on .*: MPIR_CVAR_X {state}, but scheme mvapich sets MPIR_CVAR_X to 'a b'"
        ):
            preflight.check(facts, run)


def test_step_line_has_every_quantity_once():
    step = Step(
        step=7,
        steps=120,
        loss=2.5,
        seconds=0.25,
        samples_per_s=32.0,
        model_flops_per_rank=1.5e9,
        hardware_flops_per_rank=2e9,
        lr=1e-3,
        gradient_norm=0.75,
        message_bytes=1000,
        wire_bytes=250,
        skipped=0,
    )
    assert step_line.format_step(step) == (
        "step   7/120 | loss 2.500000 | time 0.250000 s | samples/s 32.00 | model 1.500 GFLOPS/rank"
        " | hardware 2.000 GFLOPS/rank | lr 1.000E-03 | grad-norm 7.5000E-01"
        " | message 1000 B | wire 250 B | skipped 0 |"
    )


def test_a_rank_without_the_library_of_the_scheme_is_refused(monkeypatch):
    run = RUN.changed(ranks=1, scheme=NamedScheme(name="other", preload="/x.so"))
    for value, accepted in ((None, False), ("/y.so", False), ("/x.so:/y.so", True)):
        monkeypatch.delenv("LD_PRELOAD", raising=False)
        if value is not None:
            monkeypatch.setenv("LD_PRELOAD", value)
        facts = preflight.describe(MPI.COMM_SELF, run)
        if accepted:
            preflight.check(facts, run)
            continue
        with pytest.raises(UserError, match=r"rank 0 on .*: LD_PRELOAD does not contain /x\.so, which scheme"):
            preflight.check(facts, run)
