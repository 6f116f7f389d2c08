"""Tests of parameter and operation counts of model presets, compared with numbers published by their authors."""

import pytest

from hpcbench.contract.layout import Layout, find_model_misfit
from hpcbench.contract.training import Model
from hpcbench.predict import flops
from hpcbench.predict.calls import StepCalls
from hpcbench.predict.experts import describe_experts
from hpcbench.predict.workload import make_train
from hpcbench.study import presets

TRAIN = make_train(global_batch=1, seq_len=2048)


def load(name: str) -> Model:
    return Model.model_validate(presets.model(name))


def shape_of(model: Model) -> dict:
    sizes = {"layers": model.layers, "hidden": model.hidden, "vocab": model.vocab, "seq_len": TRAIN.seq_len}
    return {**sizes, "experts": describe_experts(model, TRAIN, Layout()), "block": flops.describe_block(model)}


def count_parameters(model: Model) -> int:
    return flops.count_parameters(**shape_of(model), positions=model.positions, tied=model.tied)


PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
}
"""Parameter counts in the authors' weight files (index of the safetensors files on Hugging Face)."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_number_of_parameters(name: str) -> None:
    model = load(name)
    assert count_parameters(model) == PUBLISHED[name]
    buckets = StepCalls(model, TRAIN, Layout(), 0).buckets
    assert sum(bucket.filled * count for bucket, count in buckets) == PUBLISHED[name]


def test_gpt_neox_20b() -> None:
    """arXiv 2204.06745, table 1, where the vocabulary is padded to 50432."""
    assert count_parameters(load("gpt-neox-20b").changed(vocab=50432)) == 20_554_567_680


@pytest.mark.parametrize(
    ("name", "embeddings", "others"), [("nemotron-4-340b", 9.4, 331.6), ("nemotron-4-15b", 3.1, 12.5)]
)
def test_nemotron(name: str, embeddings: float, others: float) -> None:
    """arXiv 2406.11704 and 2402.16819, section 2, with one decimal digit."""
    model = load(name)
    tables = 2 * model.vocab * model.hidden
    assert round(tables / 1e9, 1) == embeddings
    assert round((count_parameters(model) - tables) / 1e9, 1) == others


def test_deepseek_v3_is_as_large_as_published_but_for_its_attention() -> None:
    """arXiv 2412.19437, section 4.2: 671 B parameters, 37 B active per token."""
    model = load("deepseek-v3-shape")
    latent = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    without = count_parameters(model) - model.layers * (4 * model.hidden**2 - latent)
    assert without == 671_026_404_352  # without the 256 biases of each of 58 routers
    forward = flops.count_model_flops(**shape_of(model)) / 3 / TRAIN.seq_len
    active = forward / 2 - 2 * model.layers * TRAIN.seq_len * model.hidden - model.layers * (4 * 7168**2 - latent)
    assert (active + model.vocab * model.hidden) / 1e9 == pytest.approx(37, abs=0.6)


@pytest.mark.parametrize("name", [*PUBLISHED, "nemotron-4-340b", "gpt-neox-20b"])
def test_operations_are_six_per_active_weight_and_token(name: str) -> None:
    """Each element of a matrix that processes a token costs two operations forward and four backward.

    Core attention is added.
    """
    model, shape = load(name), shape_of(load(name))
    h, kv = model.hidden, model.groups * model.head_dim
    mlps = model.experts.top if model.experts else 1
    layer = 2 * h * h + 2 * h * kv + mlps * (3 if model.gated else 2) * h * model.middle
    layer += h * model.experts.count if model.experts else 0
    core = 12 * model.layers * h * TRAIN.seq_len**2
    expected = 6 * TRAIN.seq_len * (model.layers * layer + model.vocab * h) + core
    assert flops.count_model_flops(**shape) == expected
    again = flops.count_hardware_flops(**shape, recompute="full")
    assert again == expected + 2 * TRAIN.seq_len * model.layers * layer + core // 3


@pytest.mark.parametrize("name", presets.models())
def test_every_preset_can_be_cut_for_tensor_parallelism(name: str) -> None:
    assert find_model_misfit(load(name), TRAIN, Layout(tp=2)) is None


@pytest.mark.parametrize(
    ("changes", "tp", "message"),
    [
        ({"kv_heads": 5}, 1, "5 does not divide model.heads 32: use one of 1, 2, 4, 8, 16, 32"),
        ({}, 16, "16 does not divide model.kv_heads 8, so ranks would share heads of keys and values: use one of 1,"),
        ({"mlp_width": 1023}, 2, "width 1023 cannot be divided into layout.tp 2 equal parts"),
    ],
)
def test_shapes_that_cannot_be_cut_are_refused(changes: dict, tp: int, message: str) -> None:
    misfit = find_model_misfit(load("llama-3.1-8b").changed(**changes), TRAIN, Layout(tp=tp))
    assert misfit is not None and message in str(misfit)
