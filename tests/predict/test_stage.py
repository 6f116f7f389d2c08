"""Tests of the computation costs of a stage: groups of buckets, and tensor grids."""

from dataclasses import replace

import pytest

from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Model
from hpcbench.predict import constants, volume
from hpcbench.predict.call import PredictedCall
from hpcbench.predict.fabric import GroupPlacement
from hpcbench.predict.machine import Machine, make_gpu_machine
from hpcbench.predict.memory import predict_memory
from hpcbench.predict.operations import BackgroundTransfer, Compute, WaitForTransfer
from hpcbench.predict.program import TrainingProgram, load_program
from hpcbench.predict.simulator import Simulation
from hpcbench.predict.stage import StageCosts, group_buckets
from hpcbench.predict.step import StepModel
from hpcbench.predict.traffic import Costing
from hpcbench.predict.work import ComputeCosts
from hpcbench.predict.workload import Workload, make_train

MEGATRON_CORE = load_program("megatron-core")

GRIDS = [
    Layout(tp=4, tensor="2d", dp=2),
    Layout(tp=8, tensor="2.5d", depth=2, dp=2),
    Layout(tp=8, tensor="3d", pp=2, dp=2),
]


def machine(gbit: float = 400, gpu: str = "A100") -> Machine:
    result = make_gpu_machine(gpu, node_gbit=gbit)
    assert result
    return result


def workload(layout: Layout, **train: object) -> Workload:
    model = Model(layers=4, hidden=1024, heads=16, vocab=32000)
    settings = {"global_batch": 16 * layout.dp, "micro_batch": 8, "seq_len": 512, "zero": 1, **train}
    return Workload(model, make_train(**settings), layout, 4)


@pytest.mark.parametrize("buckets", [0, 1, 2, 3, 10, 24, 47, 48, 200, 1001])
def test_groups_hold_all_buckets_and_leave_the_ends_alone(buckets: int) -> None:
    result = group_buckets(buckets)
    assert sum(result) == buckets and result == result[::-1]
    assert max(result, default=0) <= max(2, buckets // 12)
    assert buckets < 2 or result[0] == result[-1] == 1


@pytest.mark.parametrize("ratio", [0.2, 0.9, 1.0, 1.1, 5.0])
def test_groups_cost_next_to_nothing_in_time(ratio: float) -> None:
    """A backward pass with 200 equal buckets is simulated on networks that are faster and slower than the pass."""

    def seconds(groups: list[int]) -> float:
        filled = [
            (Compute(float(size)), BackgroundTransfer(k, 0.0, ratio * size, 0.0, "dp")) for k, size in enumerate(groups)
        ]
        waits = [WaitForTransfer(k, "data") for k in range(len(groups))]
        return Simulation([[*(item for pair in filled for item in pair), *waits]], [0]).run()

    assert seconds(group_buckets(200)) == pytest.approx(seconds([1] * 200), rel=0.05)


@pytest.mark.parametrize("layout", GRIDS, ids=str)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_bytes_of_a_grid_are_those_of_the_volume_model_axis_by_axis(layout: Layout, recompute: str) -> None:
    built = workload(layout, recompute=recompute)
    sent = StepModel(built, machine()).run().channels
    assert {key[3] for key in sent if key[0] == "TP"} == set(layout.grid.axes)
    for key, channel in sent.items():
        of_stages = [
            volume.count_step_bytes(built.model, built.train, layout, stage * layout.dp * layout.tp).get(key, 0)
            for stage in range(layout.pp)
        ]
        assert channel.message_bytes == round(sum(of_stages) / layout.pp)


def test_pieces_of_a_grid_cost_as_many_calls_as_ranks() -> None:
    """Each reduction is a scatter and an all-gather, each with the cost of a call."""
    fabric = machine().fabric
    for place in (GroupPlacement(1, 4), GroupPlacement(4, 1, 4)):
        total, pieces = (fabric.collective_seconds(item, 1e8, place) for item in ("all-reduce", "broadcast"))
        few, many = (fabric.collective_seconds(item, 8.0, place) for item in ("all-reduce", "broadcast"))
        assert pieces - total == pytest.approx(many - few) and many - few > 2e-5
    call = PredictedCall(("TP", "FORWARD", "ACT", "j"), "reduce", 400, 4, "j")
    assert call.message_bytes(4, 1) == 3 * 100 * 4, "each rank sends its part of the others' pieces"


@pytest.mark.parametrize("layout", GRIDS, ids=str)
def test_a_grid_is_timed_encoded_and_held(layout: Layout) -> None:
    plain = replace(workload(layout.changed(dp=1), overlap=False), ranks_per_node=1)
    ahead = replace(plain, train=plain.train.changed(overlap=True))
    coded = replace(plain, scheme=NamedScheme(name="int8", algorithm="encoded", default="int8:256"))
    slow = [StepModel(item, machine(4)).run() for item in (plain, ahead, coded)]
    assert slow[1].seconds.value < slow[0].seconds.value, "pieces move while others are multiplied"
    assert slow[2].seconds.value < slow[0].seconds.value and slow[2].parts["encode"] > 0
    item = predict_memory(replace(plain, layout=Layout(pp=layout.pp)), None)
    assert predict_memory(plain, None).bytes < 0.6 * item.bytes


def test_the_work_of_a_grid_is_a_part_of_the_whole() -> None:
    """Except for the lower efficiency of smaller products, the time is the total divided by the number of ranks."""
    total = StepModel(workload(Layout()), machine()).run().parts
    for layout in (Layout(tp=4, tensor="2d"), Layout(tp=8, tensor="3d")):
        parts = StepModel(workload(layout), machine()).run().parts
        for name in ("forward", "backward"):
            assert total[name] / layout.tp < parts[name] < 3 * total[name] / layout.tp


H100 = machine(gpu="H100")


def costs(item: Workload) -> ComputeCosts:
    return ComputeCosts(H100, item.model, item.train, item.layout, item.program)


def of_program(program: TrainingProgram, **changes: object) -> Workload:
    model = Model(layers=8, hidden=10240, heads=80, vocab=131072)
    settings = {"global_batch": 8, "micro_batch": 1, "seq_len": 4096, "sequence_parallel": True, "precision": "bf16"}
    return Workload(model, make_train(**{**settings, **changes}), Layout(tp=8), 8, program=program)


@pytest.mark.parametrize(("word", "out", "into"), [("column", 40960, 10240), ("row", 10240, 40960)])
def test_products_are_made_in_pieces_where_messages_move_beside_them(word: str, out: int, into: int) -> None:
    """Only products whose rows are exchanged are divided into pieces.

    In a column-parallel layer, only the product of the forward pass is divided.
    """
    together = replace(MEGATRON_CORE, overlaps_tensor="backward")
    total, pieces, alone = (
        costs(item)._time_layer(word, out, into)
        for item in (
            of_program(together),
            of_program(MEGATRON_CORE),
            of_program(MEGATRON_CORE, sequence_parallel=False),
        )
    )
    assert pieces[0] > 1.01 * total[0] and pieces[2] == total[2]
    assert pieces[1] > 1.01 * total[1] if word == "row" else pieces[1] == total[1]
    assert alone == total, "without sequence parallelism nothing is gathered"


def test_the_last_piece_of_a_sum_has_no_product_beside_it() -> None:
    item = of_program(MEGATRON_CORE)
    stage = StageCosts(item, H100, Costing(item, H100, None), costs(item), 0)
    forward, _ = stage.chunks[0]
    sums = stage.cost([item for item in stage.calls.forward(0) if item[0].operation == "reduce-scatter"])
    every = stage.cost(stage.calls.forward(0))
    hidden = every.inside - sums.inside / 8
    assert sums.inside > 0
    assert forward.cost.inside == pytest.approx(every.inside - (1 - constants.OVERLAP_COST) * hidden)
