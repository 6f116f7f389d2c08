"""Tests of diagnoses of traces with known answers."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_kineto import collective, kernel, shifted, steps, two_steps, write

from hpcbench.contract.interpose import GroupPattern, Groups
from hpcbench.diagnose import diagnosis as module
from hpcbench.diagnose import kineto, ranks
from hpcbench.diagnose.diagnosis import Diagnosis, KindRow, diagnose
from hpcbench.diagnose.gains import CODECS, FREE, gain_at
from hpcbench.diagnose.kineto import read_rank
from hpcbench.diagnose.show import sentences

Event = dict[str, Any]


def read(tmp_path: Path, *traces: list[Event], names: Groups | None = None) -> Diagnosis:
    files = [
        write(tmp_path / f"rank{k}.json", events, rank=k, world=max(2, len(traces))) for k, events in enumerate(traces)
    ]
    return diagnose([read_rank(file) for file in files], names or Groups())


def row(diagnosis: Diagnosis, dimension: str) -> KindRow:
    (match,) = [row for row in diagnosis.rows if row.kind.dimension == dimension]
    return match


def check_two_steps(tmp_path: Path) -> None:
    diagnosis = read(tmp_path, two_steps())
    dp, tp = row(diagnosis, "DP"), row(diagnosis, "TP")
    assert diagnosis.steps == 2 and diagnosis.step_seconds == pytest.approx(1e-3)
    assert diagnosis.computing == pytest.approx(0.75)
    assert (dp.kind.operation, dp.kind.dtype, dp.calls) == ("reduce-scatter", "bf16", 1)
    assert (tp.kind.operation, tp.message_bytes, tp.wire_bytes) == ("all-gather", 1600, 800)
    assert [dp.seconds, dp.exposed] == pytest.approx([300e-6, 170e-6]), "200 us, 60 shared by halves"
    assert [tp.seconds, tp.exposed] == pytest.approx([60e-6, 30e-6])
    assert diagnosis.exposed == pytest.approx(0.2), "the union of the exposed spans"
    # free communication on DP saves at most its exposed 200 us; int8 shortens 300 us by 1 - 8.125 / 16, in two passes
    saved = 300e-6 * (1 - 8.125 / 16) - 2 * 8000 / 500e9
    factors = {gain.codec: gain.factor for gain in diagnosis.gains if gain.dimension == "DP"}
    assert factors["bf16"] == 1 and factors["free communication"] == pytest.approx(1e-3 / (1e-3 - 200e-6))
    assert factors["int8"] == pytest.approx(1e-3 / (1e-3 - saved))
    int8 = diagnosis.gain("DP", "int8")
    wire_saved = 4000 * (1 - 8.125 / 16)
    assert int8 is not None and int8.break_even == pytest.approx(8 * wire_saved / (2 * 8000 / 500e9) / 1e9)


def test_exposed_time_of_overlapping_calls(tmp_path: Path) -> None:
    check_two_steps(tmp_path)


def test_the_timeline_of_the_last_step(tmp_path: Path) -> None:
    events = [*two_steps(), kernel(1960, 30)]
    bars = {(bar.track, bar.exposed): (bar.begin, bar.end) for bar in read(tmp_path, events).timeline}
    assert bars["DP reduce-scatter (bf16)", False] == pytest.approx((400e-6, 500e-6))
    assert bars["DP reduce-scatter (bf16)", True] == pytest.approx((500e-6, 700e-6))
    assert bars["computation", False] == pytest.approx((960e-6, 990e-6)), "only the last step has this kernel"


def test_gains_at_other_bandwidths(tmp_path: Path) -> None:
    """At half the bandwidth, the 300 us of the reduce-scatter become 600 us. Of these 600 us, 500 us are exposed."""
    load = row(read(tmp_path, two_steps()), "DP").load
    traced = 8e-3 * load.wire_bytes / load.transfer_us
    free = [gain_at([load], 1000.0, FREE, 500.0, traced * factor) for factor in (1.0, 0.5, 100.0)]
    assert load.exposed_us == pytest.approx(200)
    hidden = 300 - 200
    assert free == pytest.approx([1000 / 800, (800 + 600 - hidden) / 800, 1.0])
    int8 = gain_at([load], 1000.0, CODECS[1], 500.0, traced)
    cost = 2 * load.message_bytes / 500e3
    assert int8 == pytest.approx(1000 / (800 + max(0, 300 * 8.125 / 16 - hidden) + cost))


def check_calls_in_flight(tmp_path: Path) -> None:
    """Two buckets share the link from 400 to 800 us. int8 saves at most half of these 400 us, not half of 700 us."""
    events = [*steps(0, 1000), kernel(0, 400), collective(400, 300), collective(400, 400, stream=41), kernel(800, 200)]
    diagnosis = read(tmp_path, events)
    dp = row(diagnosis, "DP")
    assert [dp.seconds, dp.transfer, dp.exposed_transfer] == pytest.approx([700e-6, 400e-6, 400e-6])
    int8 = diagnosis.gain("DP", "int8")
    saved = 400e-6 * (1 - 8.125 / 16) - 2 * (3 + 1 / 2) * 2000 / 500e9
    assert int8 is not None and int8.factor == pytest.approx(1e-3 / (1e-3 - saved))
    assert dp.bandwidth == pytest.approx(2 * 2000 / 400e-6)


def test_calls_that_are_in_flight_together_share_the_link(tmp_path: Path) -> None:
    check_calls_in_flight(tmp_path)


def operator(begin: float, duration: float, name: str, thread: int = 1) -> Event:
    """Return an operator on the host."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 0, "tid": thread, "ts": begin, "dur": duration}


def test_a_node_of_the_backward_pass_that_waits_does_not_compute(tmp_path: Path) -> None:
    """FSDP waits 500 us for a call inside an autograd node that computes for 100 us."""
    node = "RegisterPostBackwardFunctionBackward"
    events = [
        *steps(0, 1000),
        operator(0, 300, "aten::mm"),
        operator(300, 700, f"autograd::engine::evaluate_function: {node}"),
        operator(300, 700, node),
        operator(350, 100, "aten::copy_"),
        {**operator(400, 500, "gloo:all_reduce", thread=2), "cat": "user_annotation", "args": {}},
    ]
    diagnosis = read(tmp_path, events)
    assert diagnosis.computing == pytest.approx(0.4) and diagnosis.exposed == pytest.approx(0.45)


def test_messages_in_the_group_of_all_ranks_have_an_unknown_dimension(tmp_path: Path) -> None:
    """Data-parallel communication is missing. The user can name the dimension."""
    events = [*steps(0, 1000), kernel(0, 500), collective(500, 100, "SendRecv"), collective(700, 100)]
    kinds = {row.kind.operation: row.kind.dimension for row in read(tmp_path, events).rows}
    assert kinds == {"send/receive": "unknown", "all-reduce": "DP"}
    named = Groups(groups=[GroupPattern.model_validate({"match": "^default_pg$", "dimension": "PP"})])
    assert {row.kind.dimension for row in read(tmp_path, events, names=named).rows} == {"PP"}


def late_rank(ahead: float) -> tuple[list[Event], list[Event]]:
    """Return traces in which rank 1 begins its all-reduce 150 us later than rank 0. The clock of rank 1 is ahead."""
    first = [*steps(0, 1000), kernel(0, 400), collective(400, 350, n=100), kernel(750, 250)]
    second = [*steps(0, 1000), kernel(0, 550), collective(550, 200, n=100), kernel(750, 250)]
    return first, shifted(second, ahead)


def check_late_rank(tmp_path: Path, ahead: float = 0.0) -> None:
    dp = row(read(tmp_path, *late_rank(ahead)), "DP")
    assert dp.seconds == pytest.approx((350e-6 + 200e-6) / 2)
    assert [dp.waiting, dp.exposed_waiting] == pytest.approx([75e-6, 75e-6])
    assert dp.bandwidth == pytest.approx(200 / 200e-6)


@pytest.mark.parametrize("ahead", [0.0, 5e6, -123.0])
def test_waiting_for_a_late_rank(tmp_path: Path, ahead: float) -> None:
    check_late_rank(tmp_path, ahead)


def test_exposed_waiting_is_reported(tmp_path: Path) -> None:
    """Computation covers half of rank 0's waiting time."""
    first, second = late_rank(0)
    answer = sentences(read(tmp_path, [*first, kernel(400, 75, stream=9)], second))
    assert "3.8 % of the step is exposed waiting for late ranks, which compression does not shorten." in answer


def test_waiting_is_not_a_gain(tmp_path: Path) -> None:
    """Compression does not shorten rank 0's waiting time. The transfer takes 200 us, not 350 us."""
    together = read(tmp_path, *late_rank(0)).gain("DP", "free communication")
    alone = read(tmp_path, late_rank(0)[0]).gain("DP", "free communication")
    assert together is not None and alone is not None
    assert together.factor == pytest.approx(1000 / 800) and alone.factor == pytest.approx(1000 / 650)


@pytest.mark.parametrize(
    ("place", "name", "fault", "check"),
    [
        (module, "share_exposed", lambda calls, covered: module_without_cover(calls), check_two_steps),
        (module, "share_exposed", lambda calls, covered: sum_calls(calls), check_calls_in_flight),
        (kineto, "merge", list, check_two_steps),
        (module, "mark_waiting", lambda traces: True, check_late_rank),
        (ranks, "_clock_differences", lambda traces, matched: [0.0] * 2, lambda path: check_late_rank(path, 5e6)),
        (ranks, "clip", lambda spans, window: list(spans)[:1], check_two_steps),
    ],
    ids=["cover", "in flight", "union", "waiting", "clocks", "window"],
)
def test_a_planted_fault_is_detected(
    place: Any, name: str, fault: Any, check: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path)
    monkeypatch.setattr(place, name, fault)
    with pytest.raises(AssertionError):
        check(tmp_path)


def sum_calls(calls: Any) -> Any:
    """Add the times of calls as if each call had the link to itself."""
    times: Counter[Any] = Counter()
    for label, span in calls:
        times[label] += span.length
    return times


def module_without_cover(calls: Any) -> Any:
    from hpcbench.diagnose.spans import share_exposed

    return share_exposed(calls, [])


def test_older_traces_have_only_names(tmp_path: Path) -> None:
    """Kernels of PyTorch before 2.2 have no call fields. Operation and type are in the name, and bytes are unknown."""
    names = ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL()")
    events = [*steps(0, 100), kernel(0, 50), *(kernel(50 + 10 * k, 10, name) for k, name in enumerate(names))]
    diagnosis = read(tmp_path, events)
    kinds = {(row.kind.operation, row.kind.dtype, row.kind.dimension, row.message_bytes) for row in diagnosis.rows}
    assert kinds == {("all-reduce", "fp32", "unknown", None), ("reduce-scatter", "bf16", "unknown", None)}
    assert diagnosis.exposed == pytest.approx(0.2)
    assert any("no sizes in the trace" in sentence for sentence in sentences(diagnosis))


def test_steps_of_the_optimizer(tmp_path: Path) -> None:
    """Without the profiler's steps, a step ends when a call of the optimizer ends."""
    optimizer = [
        {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#AdamW.step", "tid": 1, "ts": at, "dur": 10}
        for at in (90, 190, 290)
    ]
    diagnosis = read(tmp_path, [*optimizer, kernel(0, 300), collective(120, 40), collective(220, 40)])
    assert [diagnosis.steps, diagnosis.step_seconds, row(diagnosis, "DP").calls] == pytest.approx([2, 1e-4, 1])


def test_a_trace_without_steps_is_one_whole(tmp_path: Path) -> None:
    diagnosis = read(tmp_path, [kernel(0, 80), collective(80, 20)])
    assert diagnosis.steps is None and [diagnosis.step_seconds, diagnosis.exposed] == pytest.approx([1e-4, 0.2])
    assert any("does not mark steps" in sentence for sentence in sentences(diagnosis))


def test_the_steps_that_all_ranks_have(tmp_path: Path) -> None:
    first = [*steps(0, 100, 200, first=3), kernel(0, 200), collective(50, 10), collective(150, 10)]
    second = [*steps(100, 200, 300, first=4), kernel(100, 200), collective(150, 10), collective(250, 10)]
    diagnosis = read(tmp_path, first, second)
    assert (diagnosis.steps, row(diagnosis, "DP").calls) == (1, 1)


def test_dimensions_of_groups(tmp_path: Path) -> None:
    groups = [("2", "mesh_dp", [0, 2]), ("3", "mine", [0, 1]), ("4", "PIPELINE_MODEL_PARALLEL_GROUP", [0, 3])]
    events = [*steps(0, 100), kernel(0, 50), *(collective(50 + k, 1, group=group) for k, group in enumerate(groups))]
    assert set(read(tmp_path, events).by_dimension()) == {"DP", "PP", "unknown"}
    names = Groups(groups=[GroupPattern(match="^mine$", dimension="TP")])
    assert set(read(tmp_path, events, names=names).by_dimension()) == {"DP", "PP", "TP"}


def test_the_answer_names_traffic_that_cannot_pay(tmp_path: Path) -> None:
    hidden = [*steps(0, 1000), kernel(0, 1000), collective(100, 500)]
    answer = sentences(read(tmp_path, hidden))
    assert answer[0] == "Communication is exposed for 0.0 % of the step."
    assert answer[1] == "Compression cannot pay here: even free communication makes a step at most 1.00x faster."
    counts = [*steps(0, 1000), kernel(0, 500), collective(500, 500, dtype="Long")]
    assert "no call sends floating-point values" in sentences(read(tmp_path, counts))[1]
    assert "nothing to compress" in sentences(read(tmp_path, [*steps(0, 10), kernel(0, 10)]))[0]


def test_a_lost_call_is_reported(tmp_path: Path) -> None:
    """A profiler may lose a call that ends while it stops."""
    complete = [*steps(0, 1000, 2000), *(collective(start, 100) for start in (100, 500, 1100, 1500))]
    assert read(tmp_path, complete, complete).gaps == ()
    diagnosis = read(tmp_path, complete, complete[:-1])
    assert [(gap.rank, gap.operation, gap.present, gap.expected) for gap in diagnosis.gaps] == [(1, "all-reduce", 3, 4)]
    assert any(line.startswith("The trace of rank 1 contains 3 of 4 all-reduce calls") for line in sentences(diagnosis))


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    ],
)
def test_a_kernel_name_without_the_type_leaves_the_gain_unknown(tmp_path: Path, name: str) -> None:
    """RCCL gives all kernels the same name, and NCCL names messages of any type int8."""
    diagnosis = read(tmp_path, [*steps(0, 1000), kernel(0, 500), kernel(500, 200, name, stream=40)])
    text = sentences(diagnosis)
    assert text[1].startswith("The possible gain is unknown: the trace does not contain the data type of calls")
    assert "exposed for 20 % of the step" in text[1] and not [line for line in text if "cannot pay" in line]


def test_calls_of_unknown_type_are_named_next_to_a_known_gain(tmp_path: Path) -> None:
    untyped = kernel(500, 100, "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", stream=40)
    text = sentences(read(tmp_path, [*steps(0, 1000), kernel(0, 500), untyped, collective(700, 200)]))
    assert text[1].startswith("int8 on DP can make a step at most")
    assert "The gains leave out calls of unknown type, which are exposed for 10 % of the step." in text
