"""Tests of presets, compared with published numbers, and of scheme name patterns."""

import pytest
from pydantic import ValidationError

from hpcbench.contract.scheme import Scheme
from hpcbench.contract.training import Model
from hpcbench.study import presets


def parameters(model: Model, seq_len: int) -> float:
    """arXiv 2104.04473: P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)), with a learned position table."""
    h, layers, s = model.hidden, model.layers, seq_len
    return 12 * layers * h * h * (1 + 13 / (12 * h) + (model.vocab + s) / (12 * layers * h))


def fetch(name: str) -> Model:
    return Model.model_validate(presets.model(name))


@pytest.mark.parametrize("name", [name for name in presets.models() if name.startswith("megatron")])
def test_megatron_sizes_are_what_their_names_say(name: str) -> None:
    model = fetch(name)
    billions = float(name.removeprefix("megatron-").removesuffix("b"))
    assert parameters(model, 2048) / 1e9 == pytest.approx(billions, abs=0.06)  # the paper rounds to one digit
    assert model.hidden % model.heads == 0
    assert (model.tied, model.positions, model.vocab) == (True, "learned", 51200)


def test_there_are_ten_megatron_sizes() -> None:
    assert sum(name.startswith("megatron") for name in presets.models()) == 10


def test_neox_20b_has_its_published_size() -> None:
    model = fetch("gpt-neox-20b")
    h, layers = model.hidden, model.layers
    blocks = layers * (12 * h * h + 13 * h) + 2 * h
    assert (blocks + 2 * model.vocab * h) / 1e9 == pytest.approx(20.558, abs=0.001)  # untied, vocabulary for tp 4
    assert (model.layers, model.hidden, model.heads, model.rotary_fraction) == (44, 6144, 64, 0.25)
    assert model.parallel_residual and not model.tied and model.vocab % (128 * 4) == 0


def test_gpt2_small_has_its_published_size() -> None:
    model = fetch("gpt2-small")
    published = 124_439_808  # with the vocabulary of 50257 and 1024 positions
    h, layers = model.hidden, model.layers
    ours = layers * (12 * h * h + 13 * h) + 2 * h + (50257 + 1024) * h
    assert ours == published
    assert model.vocab == 50304 and model.tied and model.positions == "learned"


@pytest.mark.parametrize("name", presets.models())
def test_every_model_preset_follows_the_schema(name: str) -> None:
    assert fetch(name).name == name


@pytest.mark.parametrize(
    ("name", "algorithm", "default", "dp"),
    [
        ("baseline", "native", "none", "none"),
        ("identity", "encoded", "none", "none"),
        ("naive-mpc", "encoded", "mpc", "mpc"),
        ("naive-zfp8", "encoded", "zfp:8", "zfp:8"),
        ("naive-zfp16", "encoded", "zfp:16", "zfp:16"),
        ("mzhybrid", "encoded", "mpc", "zfp:8"),
        ("mzhybrid-12", "encoded", "mpc", "zfp:12"),
        ("zhybrid-16-8", "encoded", "zfp:16", "zfp:8"),
        ("zhybrid-24-8", "encoded", "zfp:24", "zfp:8"),
        ("topk0.01-feedback", "encoded", "none", "topk:0.01"),
    ],
)
def test_scheme_names_carry_their_rates(name: str, algorithm: str, default: str, dp: str) -> None:
    scheme = Scheme.model_validate(presets.scheme(name))
    of_dp = [rule.codec for rule in scheme.rules if rule.dimension == "DP"] or [scheme.default]
    assert (scheme.algorithm, scheme.default, of_dp) == (algorithm, default, [dp])
    assert all(rule.dimension == "DP" and rule.phase is None and rule.kind is None for rule in scheme.rules)


def test_a_number_that_is_alone_becomes_an_integer() -> None:
    scheme = Scheme.model_validate(presets.scheme("powersgd-4"))
    assert [(rule.dimension, rule.codec, rule.low_rank) for rule in scheme.rules] == [("DP", "none", 4)]
    with pytest.raises(ValueError, match="unknown scheme"):
        presets.scheme("powersgd-x")


def test_loco_has_the_constants_of_its_paper() -> None:
    (rule,) = Scheme.model_validate(presets.scheme("loco")).rules
    assert (rule.feedback_average, rule.feedback_reset, rule.codec) == (0.8, 1024, "int4:64")


def test_dynamiq_has_the_budget_of_its_paper() -> None:
    (rule,) = Scheme.model_validate(presets.scheme("dynamiq")).rules
    assert (rule.codec, rule.mixed_bits) == ("int4:16/256:nonuniform", 5.0)


def test_aq_sgd_sends_changes_of_activations_and_whole_gradients() -> None:
    scheme = Scheme.model_validate(presets.scheme("aq-sgd"))
    activations, gradients = scheme.treatment(("PP", "FORWARD", "ACT")), scheme.treatment(("PP", "BACKWARD", "GRAD"))
    assert (activations.codec, activations.sample_changes) == ("int4:32/256", 1024)
    assert (gradients.codec, gradients.sample_changes) == ("int8:256", 0)


def test_sdp4bit_sends_changes_of_weights_and_rotated_gradients() -> None:
    scheme = Scheme.model_validate(presets.scheme("sdp4bit"))
    weights, gradients = scheme.treatment(("ZERO", "STEP", "PARAM")), scheme.treatment(("DP", "BACKWARD", "GRAD"))
    assert (weights.codec, weights.differences) == ("int4:1024", True)
    assert (gradients.codec, gradients.differences) == ("hadamard32+int4:128:stochastic", False)


@pytest.mark.parametrize(
    "name", ["naive-zfp", "naive-zfp08", "naive-zfp8x", "zhybrid-8", "mzhybrid-", "topk5-feedback", "Baseline", ""]
)
def test_other_names_are_not_schemes(name: str) -> None:
    with pytest.raises(ValueError, match="unknown scheme"):
        presets.scheme(name)


@pytest.mark.parametrize("name", ["naive-zfp3", "naive-zfp33", "zhybrid-99-8", "mzhybrid-1"])
def test_rates_beyond_the_codec_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="from 4 to 32"):
        Scheme.model_validate(presets.scheme(name))
