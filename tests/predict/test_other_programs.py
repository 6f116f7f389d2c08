"""Tests of predictions for other training programs: options, memory, many GPUs, and the device table."""

import math
from dataclasses import replace

import pytest

from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Model
from hpcbench.errors import UserError
from hpcbench.predict import constants
from hpcbench.predict.chips import list_chips
from hpcbench.predict.devices import find_device
from hpcbench.predict.fabric import GroupPlacement
from hpcbench.predict.machine import Machine, make_gpu_machine
from hpcbench.predict.memory import PredictedMemory, predict_memory
from hpcbench.predict.program import load_program
from hpcbench.predict.program_memory import count_kept_bytes
from hpcbench.predict.step import StepModel, StepTime
from hpcbench.predict.tables import read_table
from hpcbench.predict.workload import BASELINE, Workload, make_train

GPT = Model(layers=8, hidden=4096, heads=32, vocab=51200, positions="learned", parallel_residual=False, tied=True)


def machine(gbit: float = 400) -> Machine:
    built = make_gpu_machine("A100", node_gbit=gbit)
    assert built
    return built


def workload(program: str, layout: Layout, **settings: object) -> Workload:
    train = make_train(**{"global_batch": layout.dp, "micro_batch": 1, "seq_len": 2048, "zero": 3, **settings})
    profile = load_program(program)
    train = profile.adapt(train, layer_elements=GPT.layer_weights / layout.tp)
    return Workload(GPT, train, layout, 8, BASELINE, profile)


def step(item: Workload) -> StepTime:
    return StepModel(item, machine()).run()


def test_fp8_is_faster_but_not_twice() -> None:
    plain, fp8 = (step(workload(name, Layout())).seconds.value for name in ("nemo", "nemo,fp8"))
    assert 1.1 < plain / fp8 < constants.FP8_SPEED


def test_a_shard_of_one_node_gathers_within_it() -> None:
    layout = Layout(dp=32)
    everywhere, within = (step(workload(name, layout)) for name in ("fsdp", "fsdp,shard=8"))
    gathers = [result.channels["ZERO", "FORWARD", "PARAM"].network_bytes for result in (everywhere, within)]
    assert gathers[0] > 0 and gathers[1] == 0
    assert within.seconds.value < everywhere.seconds.value
    pieces = [predict_memory(workload(name, layout), None).peaks["after backward"] for name in ("fsdp", "fsdp,shard=8")]
    assert pieces[1]["optimizer"] == pytest.approx(4 * pieces[0]["optimizer"], rel=0.01)


def test_what_a_program_assumes_is_its_basis() -> None:
    """The bytes of NeMo's states have a source, but the bytes of MaxText's activations do not.

    Without a fitted slowdown, a prediction is less certain.
    """
    bases = [predict_memory(workload(name, Layout()), None).figure.basis.value for name in ("maxtext", "nemo")]
    assert bases == ["assumed", "measured elsewhere"]
    fitted, unfitted = (step(workload(name, Layout())).seconds for name in ("nemo", "megatron-core"))
    tables = constants.ERRORS["measured elsewhere"]
    assert fitted.high / fitted.value - 1 == pytest.approx(tables, rel=0.02)
    both = math.hypot(tables, constants.UNFITTED_PROGRAM_ERROR)
    assert unfitted.high / unfitted.value - 1 == pytest.approx(both, rel=0.02)


@pytest.mark.parametrize("text", ["nemo,fp4", "nemo,shard=0", "nemo,shard=x", "nemo,"])
def test_a_wrong_option_is_named(text: str) -> None:
    with pytest.raises(UserError, match=r"unknown option .*: use fp8 or shard=N"):
        load_program(text)


def test_more_ranks_wait_longer_for_the_slowest() -> None:
    shares = []
    for dp in (1, 8, 64, 512):
        result = step(workload("fsdp", Layout(dp=dp)))
        shares.append(result.parts["waiting"] / (result.seconds.value - result.parts["waiting"]))
    assert shares == sorted(shares) and shares[0] == 0
    # Expected maximum of 512 standard normal values: 3.04 (tables of order statistics).
    assert shares[-1] == pytest.approx(constants.RANK_SPREAD * 3.04, rel=0.01)


def test_collectives_lose_bandwidth_on_many_switches() -> None:
    fabric = machine().fabric
    rates = []
    for nodes in (2, 4, 16, 64):
        place = GroupPlacement(nodes, 8)
        rates.append(1e9 / fabric.nccl_parts("all-gather", 1e9, place)[1])
    alone = 1e9 / fabric.collective_parts("all-gather", 1e9, GroupPlacement(64, 8))[1]
    assert rates[0] >= rates[1] > rates[2] > rates[3]
    assert alone / rates[3] == pytest.approx((64 / 4) ** constants.CONTENTION_POWER)


def test_rings_take_longer_with_each_rank() -> None:
    fabric, few, many = machine().fabric, GroupPlacement(4, 8), GroupPlacement(64, 8)
    for place in (few, many):
        gather, plain = (times("all-gather", 1e3, place)[0] for times in (fabric.nccl_parts, fabric.collective_parts))
        ring = place.nodes * fabric.node_latency_s + (place.ranks - place.nodes) * fabric.within_latency_s
        assert gather == pytest.approx(plain - (2 if place is few else 6) * fabric.node_latency_s + ring)
    assert fabric.nccl_parts("all-gather", 1e3, GroupPlacement(1, 8)) == fabric.collective_parts(
        "all-gather", 1e3, GroupPlacement(1, 8)
    )


def test_a_layer_of_fused_kernels_keeps_16_values_of_each_width() -> None:
    """In multiples of the width, with 16 bits: norms 4; queries, keys and values 3; attention result 1; MLP 4 + 4."""
    values = 2048 * GPT.hidden
    alone = workload("megatron-core", Layout(dp=2))
    assert count_kept_bytes(alone, recompute="none") == 2 * 16 * values
    assert count_kept_bytes(alone, recompute="full") == 2 * values
    shared = workload("megatron-core", Layout(tp=4), sequence_parallel=True)
    assert count_kept_bytes(shared, recompute="none") == 2 * 16 * values / 4
    apart = workload("megatron-core", Layout(tp=4))
    assert count_kept_bytes(apart, recompute="none") == 2 * (4 + 12 / 4) * values


def test_states_have_the_bytes_of_the_program() -> None:
    layout = Layout(dp=8)
    peaks = predict_memory(workload("nemo", layout, zero=1), None).peaks["after backward"]
    parameters = peaks["weights"] / 2
    assert peaks["gradients"] == 2 * parameters
    assert peaks["optimizer"] == pytest.approx(10 * parameters / 8, rel=0.001)
    whole_states = predict_memory(workload("nemo", layout, zero=0), None).peaks["after backward"]
    assert whole_states["optimizer"] == pytest.approx(10 * parameters, rel=0.001)


def test_only_what_cannot_fit_is_called_too_large() -> None:
    peaks = {"before backward": {"weights": 100e9}}
    fits = [PredictedMemory(0, peaks, 0.0, limit).fits for limit in (120e9, 95e9, 80e9, None)]
    assert fits == [True, None, False, None]


def test_every_device_has_a_chip_and_sources() -> None:
    chips = {chip.name for chip in list_chips()}
    rows = read_table("devices.csv")
    assert all(row["chip"] in chips and row["source"] and 0 < float(row["product_share"]) <= 1 for row in rows)
    for name, chip in (
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA GB200", "GB200"),
        ("AMD Instinct MI300X", "MI300X"),
        ("h100", "H100 SXM"),
    ):
        device = find_device(name)
        assert device and device.name == chip


def test_products_of_a_device_scale_with_its_share() -> None:
    h100 = make_gpu_machine("H100", node_gbit=3200)
    assert h100
    slower = replace(h100, device=replace(h100.device, product_share=0.5))
    item = workload("fsdp", Layout())
    fast, slow = (StepModel(item, each).run().parts["forward"] for each in (h100, slower))
    assert 1.5 < slow / fast < 2
