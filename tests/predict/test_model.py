"""Tests of the performance model of a run: its parts, its limits, and runs that it refuses."""

import math
from dataclasses import replace
from typing import Literal

import pytest
from published_zero import count_published_bytes
from small_runs import RUN

from hpcbench.bench.gemm import leave_each_out
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.section import Section
from hpcbench.contract.training import Model, Train
from hpcbench.features.prune.settings import Prune
from hpcbench.predict import volume
from hpcbench.predict.activations import count_layer_bytes
from hpcbench.predict.basis import InputBasis, PredictedValue
from hpcbench.predict.break_even import find_break_even
from hpcbench.predict.machine import Machine, make_gpu_machine
from hpcbench.predict.memory import _predict_stage, predict_memory, suggest_remedy
from hpcbench.predict.prediction import predict, scale_to_ranks
from hpcbench.predict.products import MeasuredProduct, interpolate, read_published
from hpcbench.predict.step import StepModel
from hpcbench.predict.workload import Workload, make_train, make_workload

MODEL = Model(
    name="small",
    layers=8,
    hidden=1024,
    heads=16,
    vocab=32000,
    positions="rotary",
    rotary_fraction=0.25,
    parallel_residual=True,
    tied=False,
)


WAYS = ("ring", "rsa", "ulysses")


def machine(gbit: float = 400, gpu: str = "A100") -> Machine:
    result = make_gpu_machine(gpu, node_gbit=gbit)
    assert result
    return result


def workload(layout: Layout, scheme: NamedScheme | None = None, **train: object) -> Workload:
    settings = {"global_batch": 16 * layout.dp, "micro_batch": 2, "seq_len": 1024, "zero": 1, **train}
    built = Workload(MODEL, make_train(**settings), layout, 4)
    return replace(built, scheme=scheme) if scheme else built


def changed(built: Workload, **train: object) -> Workload:
    return replace(built, train=built.train.changed(**train))


def scheme(codec: str) -> NamedScheme:
    return NamedScheme(name="naive", algorithm="encoded", default=codec)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp=4),
        Layout(dp=2, tp=2, pp=2),
        Layout(tp=4, pp=4),
        Layout(dp=2, pp=4, chunks=2),
        *(Layout(dp=2, cp=2, context=way, tp=2, pp=2) for way in WAYS),
    ],
    ids=str,
)
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_bytes_of_the_step_are_those_of_the_volume_model(layout: Layout, stage: int) -> None:
    if layout.pp > 1 and stage > 1:
        stage = 1
    built = workload(layout, zero=stage, schedule="interleaved" if layout.chunks > 1 else "1f1b")
    sent = StepModel(built, machine()).run().channels
    for key, channel in sent.items():
        per_stage = [
            volume.count_step_bytes(built.model, built.train, layout, stage * layout.replicas * layout.tp).get(key, 0)
            for stage in range(layout.pp)
        ]
        assert channel.message_bytes == round(sum(per_stage) / layout.pp)
    assert sent or layout.ranks == 1


def test_many_micro_batches_take_what_they_would_one_by_one() -> None:
    """Only the first rounds of micro-batches are simulated, because the remaining rounds repeat."""
    few, layout = workload(Layout(dp=2, pp=4), global_batch=2 * 2 * 24), Layout(dp=2, pp=4)
    step = StepModel(few, machine())
    assert few.micro_batches == 24 == 2 * 3 * layout.pp
    total = step.run().seconds.value
    shorter = StepModel(changed(few, global_batch=2 * 2 * 12), machine()).run().seconds.value
    longer = StepModel(changed(few, global_batch=2 * 2 * 48), machine()).run().seconds.value
    assert longer - total == pytest.approx(2 * (total - shorter), rel=1e-6)


def test_a_faster_network_never_slows_a_step() -> None:
    built = workload(Layout(dp=8, tp=2, pp=2))
    times = [StepModel(built, machine(gbit)).run().seconds.value for gbit in (1, 10, 100, 1000)]
    assert times == sorted(times, reverse=True) and times[0] > 2 * times[-1]


def test_compression_wins_on_a_slow_network_and_loses_on_a_fast_one() -> None:
    """The closed-form break-even bandwidth is between the two bandwidths.

    The text states on which side of the break-even bandwidth the machine is.
    """
    layout = Layout(dp=16)
    pair = [
        ("baseline", workload(layout, overlap=False)),
        ("int8", workload(layout, scheme("int8:256"), overlap=False)),
    ]
    slow, fast = (predict("", pair, machine(gbit), baseline="baseline")[1] for gbit in (2, 3000))
    assert slow.against and fast.against
    assert slow.against.gain > 0.2 and "wins" in slow.against.sentence
    assert fast.against.gain < 0 and "compression loses here" in fast.against.sentence
    for item in (slow, fast):
        assert 2 < item.against.bytes_per_s * 8e-9 < 3000
    at = slow.against.bytes_per_s * 8e-9
    there = predict("", pair, machine(at), baseline="baseline")[1]
    assert there.against and abs(there.against.gain) < 0.05


def test_break_even_is_where_both_lines_cross() -> None:
    at = find_break_even(local=3.0, network_bytes=10.0, baseline_local=1.0, baseline_bytes=40.0)
    assert at == 15.0 and 3 + 10 / at == 1 + 40 / at
    assert find_break_even(local=1.0, network_bytes=10.0, baseline_local=1.0, baseline_bytes=40.0) == math.inf
    assert find_break_even(local=2.0, network_bytes=40.0, baseline_local=1.0, baseline_bytes=40.0) == 0.0


def test_memory_of_gpt_3_is_as_published() -> None:
    """With 16 bytes per parameter, 2.8 TB are divided over 1,024 GPUs by ZeRO-3."""
    assert float(count_published_bytes(0, 1)) * 175e9 == pytest.approx(2.8e12)
    model = Model(
        name="gpt-3",
        layers=96,
        hidden=12288,
        heads=96,
        vocab=51200,
        positions="learned",
        rotary_fraction=0.0,
        parallel_residual=False,
        tied=True,
    )
    built = Workload(model, make_train(global_batch=64, micro_batch=1, seq_len=2048, zero=1), Layout(tp=8, pp=8), 8)
    result = predict_memory(built, 80e9)
    held = result.peaks["after backward"]
    # weights and gradients in 16 bits; sums, master weights and two moments in 32 bits: 20 bytes here
    assert held["weights"] + held["gradients"] + held["optimizer"] == pytest.approx(20 * 175e9 / 64, rel=0.05)
    assert list(result.peaks) == ["before backward", "after backward", "after reduction"]
    assert result.peaks["after backward"]["activations"] == 0


def test_activations_are_as_published() -> None:
    """arXiv 2205.05198, table 2: 34 s b h / t with sequence parallelism and selective recomputation."""
    sizes = {"seq_len": 2048, "micro_batch": 1, "hidden": 12288, "heads": 96, "tp": 8}
    slim = count_layer_bytes(**sizes, sequence_parallel=True, recompute="selective")  # type: ignore[arg-type]
    assert slim == 34 * 2048 * 12288 / 8


@pytest.mark.parametrize("way", WAYS)
def test_ranks_that_share_positions_share_activations_and_attention(way: Literal["ring", "rsa", "ulysses"]) -> None:
    """Each of four ranks stores and computes a quarter of a long sample.

    The network is slow, so that message times are visible.
    """
    long = {"seq_len": 16384, "micro_batch": 1, "recompute": "selective", "global_batch": 4}
    alone, shared = workload(Layout(), **long), workload(Layout(cp=4, context=way), **long)
    stored = [predict_memory(item, None).peaks["before backward"]["activations"] for item in (alone, shared)]
    assert stored[0] == pytest.approx(4 * stored[1])
    shorter = StepModel(shared, machine(1e6)).run().seconds.value / StepModel(alone, machine(1e6)).run().seconds.value
    assert shorter < 0.6 or way == "rsa", "whole rows of scores go through memory"
    far = replace(shared, ranks_per_node=1)
    times = [StepModel(far, machine(gbit)).run().seconds.value for gbit in (1, 10, 100)]
    assert times == sorted(times, reverse=True) and times[0] > 1.5 * times[-1]
    assert StepModel(replace(far, scheme=scheme("int8:256")), machine(1)).run().seconds.value < 0.9 * times[0]


def test_rows_of_scores_grow_with_the_square_of_the_length() -> None:
    """Ring self-attention stores the scores, whereas ring attention and Ulysses do not."""
    stored: dict[str, list[float]] = {}
    for way in WAYS:
        for length in (4096, 8192):
            built = workload(Layout(cp=4, context=way), seq_len=length, micro_batch=1)  # type: ignore[arg-type]
            stored.setdefault(way, []).append(predict_memory(built, None).peaks["before backward"]["activations"])
    assert stored["ring"] == stored["ulysses"] and stored["ring"][1] == 2 * stored["ring"][0]
    rows = [total - without for total, without in zip(stored["rsa"], stored["ring"], strict=True)]
    assert rows == [MODEL.layers * MODEL.heads * length**2 / 4 * 2 for length in (4096, 8192)]


def test_what_does_not_fit_has_a_remedy_that_helps() -> None:
    built = workload(Layout(dp=4), global_batch=64, micro_batch=16, zero=0)
    before = predict_memory(built, 10e9)
    assert before.fits is False and suggest_remedy(built, before) == "set train.recompute: full"
    after = predict_memory(changed(built, recompute="full"), 10e9)
    assert after.bytes < 0.75 * before.bytes


def test_residuals_and_buffers_of_codecs_are_counted() -> None:
    rule = Rule(dimension="DP", codec="sign:1024", feedback=True)
    plain, coded = (
        workload(Layout(dp=4)),
        workload(Layout(dp=4), NamedScheme(name="sign", algorithm="encoded", default="none", rules=[rule])),
    )
    extra = predict_memory(coded, None).peaks["after backward"]
    assert predict_memory(plain, None).peaks["after backward"]["residuals"] == 0
    assert extra["residuals"] == pytest.approx(8 * 133e6, rel=0.3) and extra["codec buffers"] > 0


def test_errors_of_gradients_between_stages_are_counted() -> None:
    rule = Rule(dimension="PP", phase="BACKWARD", codec="int4:32", feedback=True)
    lazy = NamedScheme(name="lazy", algorithm="encoded", default="none", rules=[rule])
    for chunks, boundaries in ((1, 1), (2, 2)):
        built = workload(Layout(pp=2, chunks=chunks), lazy, schedule="interleaved" if chunks > 1 else "1f1b")
        errors = [_predict_stage(built, stage)[0]["after backward"]["residuals"] for stage in range(2)]
        message = built.train.micro_batch * built.train.seq_len * built.model.hidden
        assert errors == [4.0 * message * (boundaries - 1), 4.0 * message * boundaries]


def test_activations_of_samples_are_counted() -> None:
    rule = Rule(dimension="PP", phase="FORWARD", codec="int4:32", sample_changes=10)
    built = workload(Layout(pp=3), NamedScheme(name="changes", algorithm="encoded", default="none", rules=[rule]))
    sizes = [_predict_stage(built, stage)[0]["after backward"]["residuals"] for stage in range(3)]
    boundary = 4.0 * 10 * built.train.seq_len * built.model.hidden
    assert sizes == [boundary, 2 * boundary, boundary]


def test_more_ranks_are_more_replicas() -> None:
    built = scale_to_ranks(workload(Layout(dp=2, tp=2, pp=2)), 32)
    assert (built.layout.dp, built.layout.tp, built.layout.pp) == (8, 2, 2) and built.micro_batches == 8
    with pytest.raises(ValueError, match="not a multiple of tp x pp = 2 x 2 = 4"):
        scale_to_ranks(built, 30)


@pytest.mark.parametrize(("section", "fields"), [(Model, 16), (Train, 42), (Layout, 10)])
def test_every_setting_is_covered_or_refused(section: type[Section], fields: int) -> None:
    """All settings except sparse gradients and weights are supported."""
    assert len(section.model_fields) == fields, "a new setting: model it, or add it to UNPREDICTED"


@pytest.mark.parametrize(("name", "value"), [("sparse_gradients", "always"), ("prune", Prune(pattern="2:4"))])
def test_settings_that_the_model_lacks_are_refused_by_name(name: str, value: object) -> None:
    run = RUN.changed(train=RUN.train.model_copy(update={name: value}))
    with pytest.raises(ValueError, match=rf"train\.{name}: `hpcbench predict` does not cover"):
        make_workload(run, ranks_per_node=4)


def test_messages_over_nccl_are_refused() -> None:
    assert make_workload(RUN.changed(train=RUN.train.changed(transport="mpi")), ranks_per_node=4)
    with pytest.raises(ValueError, match=r"train\.transport nccl"):
        make_workload(RUN.changed(train=RUN.train.changed(transport="nccl")), ranks_per_node=4)


def test_products_between_measured_ones() -> None:
    points = [MeasuredProduct(1024, 1024, k, e) for k, e in ((256, 0.4), (1024, 0.6), (4096, 0.8))]
    assert interpolate(points, 1024, 1024, 1024, 108) == pytest.approx(0.6, rel=0.01)
    assert 0.4 < interpolate(points, 1024, 1024, 512, 108) < 0.6
    # 109 tiles of the largest size need two waves on 108 multiprocessors
    full, more = (interpolate(points, 256 * tiles, 128, 4096, 108) for tiles in (108, 109))
    assert more < 0.85 * full


@pytest.mark.parametrize("family", ["V100", "A100", "H100"])
def test_a_products_time_is_known_from_the_others(family: str) -> None:
    table = read_published(family)
    assert table and table.basis is InputBasis.ELSEWHERE and table.source
    left = [abs(error) for error in leave_each_out(dict(table.points)["fwd"], table.units, least_flops=1e11)]
    assert len(left) > 40 and sum(left) / len(left) < 0.07


def test_intervals_hold_their_value() -> None:
    figure = PredictedValue.around(2.0, 0.5, InputBasis.SHEET)
    assert (figure.low, figure.high) == (1.5, 2.5)
    rate = figure.inverse(10.0)
    assert rate.low == 4.0 and rate.value == 5.0 and rate.high == pytest.approx(10 / 1.5)
