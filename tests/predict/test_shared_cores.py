"""Tests of the cost of layers and messages if ranks share cores, with artificial tables."""

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Model
from hpcbench.predict import constants, core_costs
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.call import PredictedCall
from hpcbench.predict.constants import SHARED_CORES_ERROR
from hpcbench.predict.earlier_runs import Calibration, fit_slowdown, fit_waiting
from hpcbench.predict.fabric import GroupPlacement
from hpcbench.predict.layers import MeasuredLayer, interpolate_factors
from hpcbench.predict.machine import Machine, make_cpu_machine
from hpcbench.predict.measured_tables import apply_tables, read_tables
from hpcbench.predict.operations import BackgroundTransfer, Compute, WaitForTransfer
from hpcbench.predict.program import ENGINE
from hpcbench.predict.simulator import CoreUse, Simulation
from hpcbench.predict.stage import find_stage_parts
from hpcbench.predict.step import StepModel
from hpcbench.predict.traffic import Costing
from hpcbench.predict.work import ComputeCosts
from hpcbench.predict.workload import Workload, make_train

ROOT = Path(__file__).resolve().parents[2]
RANKS, CORES = 8, 2.0
SIZES = (1 << 10, 1 << 18, 1 << 20, 1 << 22)


def between_work() -> list[dict[str, Any]]:
    """Return a table in which a call adds 1 ms and 1 ns per byte.

    These values are for a pair within a node. Values are doubled between nodes, and tripled for all ranks.
    """
    rows = []
    for operation in ("send", "all-reduce", "reduce-scatter", "all-gather"):
        for ranks, crossing, factor in ((2, False, 1), (2, True, 2), (8, True, 3)):
            if operation != "send" or ranks == 2:
                start = {"operation": operation, "ranks": ranks, "crossing": crossing}
                rows += [{**start, "bytes": n, "seconds": factor * (1e-3 + 1e-9 * n)} for n in SIZES]
    return rows


def cores(**more: Any) -> dict[str, Any]:
    """Return a table of unlimited links."""
    level = {"latency_s": 1e-3, "seconds": {"1048576": 2e-3}, "senders": 1}
    links = {"latency_s": 1e-3, "bytes_per_s": 1e9}
    return {
        "schema": 1,
        "within": links,
        "between": links,
        "messages": {"within": level, "between": level},
        "codecs": {},
        "native": [],
        "ranks_per_node": [2] * 4,
        "between_work": between_work(),
        **more,
    }


def work() -> core_costs.CoreCosts:
    result = core_costs.read_core_costs(cores(), CORES)
    assert result is not None
    return result


def test_a_rank_has_its_part_of_what_a_call_adds_to_all() -> None:
    share = CORES / RANKS
    result = work()
    assert result.time_message(1 << 20, crossing=False) == pytest.approx(share * (1e-3 + 1e-9 * (1 << 20)))
    assert result.time_message(1 << 19, crossing=True) == pytest.approx(share * 2 * (1e-3 + 1e-9 * (1 << 19)))
    assert result.time_message(0, crossing=False) == result.time_message(1 << 10, crossing=False), (
        "never less than the smallest"
    )
    largest = share * 3 * (1e-3 + 1e-9 * SIZES[-1])
    assert result.time_collective("all-gather", 2 * SIZES[-1], ranks=8, crossing=True) == pytest.approx(2 * largest)


def test_between_a_pair_and_all_the_cost_grows_with_the_rounds() -> None:
    pair, four, eight = (work().time_collective("all-reduce", 1 << 20, ranks=n, crossing=True) for n in (2, 4, 8))
    assert four - pair == pytest.approx(eight - four) and eight / pair == pytest.approx(3 / 2)
    within = work().time_collective("all-reduce", 1 << 20, ranks=2, crossing=False)
    assert pair / within == pytest.approx(2)
    exchange = work().time_collective("all-to-all", 8 << 18, ranks=8, crossing=True)
    assert exchange == pytest.approx(7 * work().time_message(1 << 18, crossing=True))


def test_a_step_of_a_plan_pays_for_each_message_and_waits_once() -> None:
    result = replace(work(), plan_factor=1.0)
    start = result.time_message(0, crossing=True)
    assert result.time_step([]) == 0 and result.time_step([(0, True)]) == start
    assert result.time_step([(0, True)] * 7) == pytest.approx(start + 6 * result.part_s)
    assert result.part_s == constants.PLAN_MESSAGE_S > 0
    assert replace(result, plan_factor=1.5).time_step([(0, True)]) == 1.5 * start


def test_a_plan_pays_for_its_call_beside_its_messages() -> None:
    coded = Workload(
        Model(layers=2, hidden=256, heads=8),
        make_train(global_batch=2, micro_batch=2, seq_len=128, precision="fp32"),
        *(Layout(tp=2), 2, NamedScheme(name="int8", algorithm="encoded", default="int8:256")),
    )
    bare = make_cpu_machine("hosts", cores=1, memory_bytes=None, node_gbit=1.0)
    call = PredictedCall(("TP", "FORWARD", "ACT"), "all-reduce", 1 << 16, 4, "tp")
    cheap, dear = (
        Costing(coded, replace(bare, fabric=replace(bare.fabric, core_costs=replace(work(), call_s=s)))) for s in (0, 1)
    )
    assert dear.cost(call, size=2).inside - cheap.cost(call, size=2).inside == pytest.approx(1.0)


def test_what_a_thread_drives_takes_a_part_of_the_core_of_the_rank_that_computes() -> None:
    """On one core, one stage is repeatedly woken by its operations in flight during 2 s of its 3 s of work."""

    def ends(waiting: float, driving: float, *, driven: bool) -> float:
        program = [BackgroundTransfer("it", 0.0, 2.0, driven=driven), Compute(3.0), WaitForTransfer("it", "data")]
        return Simulation([program], [0], 1.0, CoreUse(waiting, driving, 0.0)).run()

    assert ends(0.0, 0.25, driven=False) == pytest.approx(3.0)
    assert ends(0.0, 0.25, driven=True) == pytest.approx(3.5), "three quarters of 2 s, and 1.5 s alone"
    assert ends(0.25, 0.0, driven=True) == pytest.approx(3.0), "no stage waits"


def test_who_waits_drives_what_is_under_way_by_itself() -> None:
    """On one core, the first stage drives a transfer while it waits, and takes processor time from a waiting stage."""
    programs = [[BackgroundTransfer("it", 0.0, 4.0, driven=True), WaitForTransfer("it", "data")], [Compute(3.0)]]
    simulation = Simulation(programs, [0, 1], 1.0, CoreUse(0.25, 0.5, 0.0))
    simulation.run()
    assert simulation.stages[1].time == pytest.approx(4.0)


def test_ranks_with_cores_of_their_own_pay_nothing() -> None:
    assert core_costs.read_core_costs(cores(), 8.0) is None
    assert core_costs.read_core_costs(cores(between_work=[]), CORES) is None


def test_a_stage_that_waits_takes_a_part_of_the_core_of_one_that_computes() -> None:
    """On one core, the first stage waits 4 s for its own message while the second stage computes for 3 s."""
    programs = [[BackgroundTransfer("it", 0.0, 4.0), WaitForTransfer("it", "data")], [Compute(3.0)]]

    def ends(waiting: float, networks: float = 0.0) -> float:
        simulation = Simulation(programs, [0, 1], 1.0, CoreUse(waiting, 0.0, networks))
        simulation.run()
        return simulation.stages[1].time

    assert ends(0.0) == pytest.approx(3.0)
    assert ends(0.25) == pytest.approx(4.0)
    assert ends(0.5) == pytest.approx(5.0), "2 s in the 4 s of waiting, and 1 s alone"
    assert ends(0.0, 1.0) == pytest.approx(5.0), "one of two networks is busy for 4 s"


def machine(directory: Path, tables: dict[str, Any]) -> Machine:
    for name, table in tables.items():
        (directory / name).write_text(json.dumps(table))
    bare = make_cpu_machine("hosts", cores=1, memory_bytes=None, node_gbit=1.0)
    return apply_tables(replace(bare, shared_cores=CORES), read_tables(directory, asked_for=True), "fp32")[0]


LAYERS = [
    {"precision": "fp32", "positions": positions, "hidden": 256, "heads": 8, "micro_batch": 2, "seq_len": 128,
     "pass": passage, "seconds": seconds}
    for positions, there, back in (("rotary", 6e-3, 9e-3), ("learned", 5e-3, 8e-3))
    for passage, seconds in (("forward", there), ("backward", back))
]  # fmt: skip
GEMM = {
    "schema": 1,
    "device": "made up",
    "products": [
        {"precision": "fp32", "m": 512, "n": 768, "k": 768, "seconds": 3e-3, "pass": item}
        for item in ("fwd", "dgrad", "wgrad")
    ],
    "memory": [
        {"operation": "copy", "bytes": 1 << 20, "seconds": 1e-5},
        {"operation": "copy", "bytes": 1 << 27, "seconds": 1e-2},
    ],
    "layers": LAYERS,
    "update_s": 2e-9,
}


@pytest.mark.parametrize(("positions", "there", "back"), [("rotary", 6e-3, 9e-3), ("learned", 5e-3, 8e-3)])
def test_a_measured_layer_takes_what_was_measured(tmp_path: Path, positions: Any, there: float, back: float) -> None:
    result = machine(tmp_path, {"gemm.json": GEMM})
    model = Model(layers=3, hidden=256, heads=8, positions=positions)
    train = make_train(global_batch=2, micro_batch=2, seq_len=128, precision="fp32")
    layer = ComputeCosts(result, model, train, Layout(), ENGINE).layer
    assert layer.forward.total == pytest.approx(there) and layer.backward.total == pytest.approx(back)
    assert result.device.copy_bytes_per_s == pytest.approx((1 << 27) / 1e-2), "what no cache holds"


def test_factors_of_layers_lie_between_those_of_their_neighbours() -> None:
    near, far = MeasuredLayer("rotary", 128, 256, 2.0, 3.0), MeasuredLayer("rotary", 512, 256, 1.0, 1.5)
    there, back = interpolate_factors([near, far], positions="rotary", hidden=256, tokens=256)
    assert there == pytest.approx(2**0.5, rel=1e-3) and back == pytest.approx(4.5**0.5, rel=1e-3)
    assert interpolate_factors([near, far], positions="rotary", hidden=512, tokens=256)[0] == pytest.approx(
        1.0, abs=0.01
    )
    assert interpolate_factors([], positions="rotary", hidden=512, tokens=256) == (1.0, 1.0)


def test_a_split_layer_has_the_factor_of_split_ones_and_of_a_smaller_whole_one_where_none_was_measured() -> None:
    total = [MeasuredLayer("learned", 128, 256, 1.0, 1.0), MeasuredLayer("learned", 256, 256, 2.0, 2.0)]
    split = [
        MeasuredLayer("learned", 256, 256, 3.0, 4.0, 4),
        MeasuredLayer("learned", 256, 256, 5.0, 6.0, 4, spread=True),
    ]
    asked: dict[str, Any] = {"positions": "learned", "hidden": 256, "tokens": 256}
    assert interpolate_factors(total + split, **asked, ways=4) == pytest.approx((3.0, 4.0))
    assert interpolate_factors(total + split, **asked, ways=4, spread=True) == pytest.approx((5.0, 6.0))
    assert interpolate_factors(total, **asked, ways=4)[0] == pytest.approx(1.0, abs=0.01), "a quarter of the weights"
    assert interpolate_factors(total + split, **asked)[0] == pytest.approx(2.0, abs=0.01), (
        "split ones say nothing of whole ones"
    )


@pytest.mark.parametrize("spread", [False, True])
def test_a_measured_part_of_a_split_layer_takes_what_was_measured(tmp_path: Path, spread: bool) -> None:
    split = [{**row, "tp": 2, "sequence_parallel": spread, "seconds": 5 * row["seconds"]} for row in LAYERS[2:]]
    result = machine(tmp_path, {"gemm.json": {**GEMM, "layers": LAYERS + split}})
    train = make_train(global_batch=2, micro_batch=2, seq_len=128, precision="fp32", sequence_parallel=spread)
    model = Model(layers=3, hidden=256, heads=8, positions="learned")
    layer = ComputeCosts(result, model, train, Layout(tp=2), ENGINE).layer
    assert layer.forward.total == pytest.approx(25e-3) and layer.backward.total == pytest.approx(40e-3)


def test_an_update_takes_its_measured_time_and_what_it_moves(tmp_path: Path) -> None:
    train = make_train(global_batch=2, micro_batch=2, seq_len=128, precision="fp32")
    model = Model(layers=1, hidden=256, heads=8)
    costs = ComputeCosts(machine(tmp_path, {"gemm.json": GEMM}), model, train, Layout(), ENGINE)
    rate = (1 << 27) / 1e-2
    assert costs.time_optimizer(1e6, 8e6) == pytest.approx(1e6 * (2e-9 + 12 / rate) + 8e6 * 16 / rate)


def test_messages_of_ranks_that_share_cores_hide_behind_nothing(tmp_path: Path) -> None:
    """Eight replicas use ZeRO-3 on links without cost, so the step time is the total work divided by the cores."""
    result = machine(tmp_path, {"gemm.json": GEMM, "network.json": cores(), "cores.json": cores()})
    result = replace(result, fabric=replace(result.fabric, node_bytes_per_s=1e15))
    model = Model(layers=3, hidden=256, heads=8)
    train = make_train(global_batch=16, micro_batch=2, seq_len=128, precision="fp32", zero=3)
    workload = Workload(model, train, Layout(dp=8), 2)
    step = StepModel(workload, result)
    seconds = step.run()
    costs = step._programs[0].costs
    work = sum(part.busy for pair in costs.chunks for part in pair)
    calls = sum(cost.inside for buckets in costs.reductions for _, cost in buckets) + costs.tail.inside
    total = (work + calls + costs.optimizer) * RANKS / CORES
    assert seconds.seconds.value - seconds.parts["waiting"] == pytest.approx(total, rel=1e-3)
    gathers = [item for part in find_stage_parts(workload, 0) for item in range(part.layers)]
    assert sum(action.gathered for pair in costs.chunks for action in pair) > len(gathers) * 2 * CORES / RANKS * 3e-3


def test_replicas_lose_what_driving_takes_and_nothing_to_waiting_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight replicas do the same work, so none computes while another waits."""
    train = make_train(global_batch=16, micro_batch=2, seq_len=128, precision="fp32", overlap=True, bucket_mb=1.0)
    workload = Workload(Model(layers=3, hidden=256, heads=8), train, Layout(dp=8), 2)

    def seconds(waiting: float, driving: float) -> float:
        monkeypatch.setattr(constants, "WAITING_CORES", waiting)
        monkeypatch.setattr(constants, "DRIVING_CORES", driving)
        result = machine(tmp_path, {"gemm.json": GEMM, "network.json": cores(), "cores.json": cores()})
        return (
            StepModel(workload, replace(result, fabric=replace(result.fabric, node_bytes_per_s=1e8)))
            .run()
            .seconds.value
        )

    alone = seconds(0.0, 0.0)
    assert seconds(0.1, 0.0) == pytest.approx(alone)
    assert seconds(0.0, 0.1) > 1.01 * alone


def test_messages_to_the_next_stage_come_in_their_order(tmp_path: Path) -> None:
    """The first of two messages in flight uses the link alone and does not share it with the second message."""
    result = machine(tmp_path, {"gemm.json": GEMM, "network.json": cores(), "cores.json": cores()})
    train = make_train(
        global_batch=16, micro_batch=2, seq_len=128, precision="fp32", zero=1, schedule="gpipe", overlap=True
    )
    step = StepModel(Workload(Model(layers=2, hidden=256, heads=8), train, Layout(dp=4, pp=2), 2), result)
    posts = [
        [item for item in program.list_operations(2) if isinstance(item, BackgroundTransfer)]
        for program in step._programs
    ]
    for sent, way in zip(posts, ("pp forward", "pp backward"), strict=True):
        current = [item for item in sent if item.queue == way]
        assert len(current) == 2 and current[0].network > 0 and all(item.driven for item in current)
    keys = [item.key for item in posts[0] if item.queue == "pp forward"]
    shared = Simulation(
        [
            [
                BackgroundTransfer(keys[0], 0.0, 1.0),
                BackgroundTransfer(keys[1], 0.0, 1.0),
                WaitForTransfer(keys[0], "pipeline"),
            ]
        ],
        [0],
    )
    ordered = Simulation(
        [
            [
                *(BackgroundTransfer(key, 0.0, 1.0, 0.0, "pp forward") for key in keys),
                WaitForTransfer(keys[0], "pipeline"),
            ]
        ],
        [0],
    )
    shared.run()
    ordered.run()
    assert (shared.stages[0].time, ordered.stages[0].time) == (2.0, 1.0)


def test_an_earlier_run_teaches_how_much_slower_shared_cores_are(tmp_path: Path) -> None:
    """Computation took 1.3 times as long as predicted, on links with half of the bandwidth in the table."""
    result = machine(tmp_path, {"gemm.json": GEMM, "network.json": cores(), "cores.json": cores()})
    result = replace(result, fabric=replace(result.fabric, node_bytes_per_s=1e8))
    slow = replace(result, shared_cores=CORES / 1.3, fabric=replace(result.fabric, share=result.fabric.share / 2))
    built = [
        Workload(Model(layers=layers, hidden=256, heads=8),
                make_train(global_batch=16, micro_batch=2, seq_len=128, precision="fp32", zero=0, overlap=False),
                Layout(dp=8), 2)
        for layers in (3, 6)
    ]  # fmt: skip
    measured = [StepModel(item, slow).run() for item in built]
    seconds, computed = measured[0].seconds.value, measured[0].computed
    assert computed < 0.5 * seconds, "most of the step is waiting, which says nothing of computing"
    factor = fit_slowdown(built[0], (result, {}), computed)
    assert factor == pytest.approx(1.3, rel=2e-3)
    taught, _ = Calibration(1, work=factor).apply((result, {}))
    assert taught.work_factor == 1.0 and taught.work_basis is InputBasis.HERE
    waiting = fit_waiting(built[0], (taught, {}), seconds, computed)
    assert waiting == pytest.approx(2.0, rel=0.05)
    taught, _ = Calibration(1, work=factor, waiting=waiting or 0.0).apply((result, {}))
    assert StepModel(built[1], taught).run().seconds.value == pytest.approx(measured[1].seconds.value, rel=0.05)
    assert fit_slowdown(built[0], (result, {}), 1e9) == pytest.approx(4.0, rel=1e-2), "no more than that is believed"
    fast = replace(result, fabric=replace(result.fabric, node_bytes_per_s=1e15))
    assert fit_waiting(built[0], (fast, {}), seconds, computed) is None, "a run that hardly waits says nothing of links"


@pytest.mark.parametrize("learned", [False, True])
def test_intervals_of_shared_cores_contain_8_of_10_measured_times(learned: bool) -> None:
    """The times come from five stored comparisons. Input errors, which are excluded, would widen the intervals."""
    held = []
    for path in sorted((ROOT / "results" / "reference").glob("predict-measured*.json")):
        stored = json.loads(path.read_text())
        by_tables = stored["by_tables"]
        for cell, alone in zip(stored["cells"], by_tables, strict=True):
            predicted = cell["predicted"] if learned else alone
            held.append(abs(statistics.median(cell["measured"]) - predicted) <= SHARED_CORES_ERROR * predicted)
    assert len(held) == 200 and 150 <= sum(held) <= 170


def test_a_library_that_sends_straight_sends_more_where_nodes_have_several_ranks() -> None:
    """The numbers were measured on four nodes with two ranks each.

    If each rank sends to every other rank, 12/7 times as many bytes cross nodes as in a ring.
    """
    bare = make_cpu_machine("hosts", cores=1, memory_bytes=None, node_gbit=1.0).fabric
    reference = (("reduce-scatter", 12 / 7), ("all-gather", 1.0), ("all-reduce", 1.5))
    fabric = replace(bare, library=reference, library_place=GroupPlacement(4, 2))
    factors = [
        fabric.library_factor("reduce-scatter", place)
        for place in (GroupPlacement(4, 2), GroupPlacement(4, 1), GroupPlacement(2, 2))
    ]
    assert factors == pytest.approx([12 / 7, 1.0, 4 / 3])
    assert fabric.library_factor("all-gather", GroupPlacement(2, 2)) == 1.0, "a ring is a ring everywhere"
    slow = replace(fabric, library=(("reduce-scatter", 2 * 12 / 7),))
    assert slow.library_factor("reduce-scatter", GroupPlacement(4, 1)) == pytest.approx(2.0), (
        "what that does not explain stays"
    )
    assert fabric.library_factor("all-reduce", GroupPlacement(4, 1)) == pytest.approx(1.5**0.5)
