"""Tests of the NCCL executor: bits and byte counts of plans, on a strict model of NCCL and CUDA streams."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from mpi4py import MPI
from plan_cases import IRREGULAR, inputs, lay_out
from simulate import simulate
from strict_nccl import (
    CALLER,
    Model,
    StreamError,
    StrictAccelerator,
    StrictCommunicator,
    World,
    seen,
    with_strict_codecs,
)

from hpcbench.codecs.registry import get_codec
from hpcbench.comm import stream_execute
from hpcbench.comm.channel import Channel
from hpcbench.comm.execute import Call
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.memory import Tally
from hpcbench.comm.nccl import find_operation, find_type
from hpcbench.comm.nccl_library import NcclLibrary
from hpcbench.comm.places import DevicePlace, Places
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.planner import refusal
from hpcbench.comm.relay import Relay
from hpcbench.comm.steps import PeerSpan
from hpcbench.comm.stream_execute import GroupOrder, Lane
from hpcbench.comm.streamed_calls import StreamedCalls
from hpcbench.comm.topology import Topology
from hpcbench.comm.vector import Exchanged, InPlace, Reduced
from hpcbench.contract.shards import ElementRange, cut_evenly
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase

ORDERS = (0, 1, 7)
"""Orders in which the streams run."""
ALGORITHMS = (
    Algorithm.TWO_SHOT,
    Algorithm.HIERARCHICAL,
    Algorithm.HIERARCHICAL_ENCODED,
    Algorithm.RING,
    Algorithm.DOUBLING,
)
TOPOLOGIES = [
    Topology.flat(2),
    Topology.regular(2, 2),
    *(pytest.param(topology, marks=pytest.mark.long) for topology in (Topology.flat(5), IRREGULAR[2])),
]


def channel(codec: str = "int8:64", algorithm: Algorithm = Algorithm.TWO_SHOT, dtype: Any = None) -> Channel:
    traffic = Dimension.DP, Phase.BACKWARD, MessageKind.GRAD
    return Channel(*traffic, get_codec(codec), algorithm, dtype=dtype)


class Ranks:
    """All ranks of one communicator in the model."""

    def __init__(self, topology: Topology) -> None:
        self.model, self.world, self.topology = Model(), World(topology.ranks), topology
        self.accelerators = [StrictAccelerator(self.model, rank) for rank in range(topology.ranks)]
        self.calls = [
            StreamedCalls(StrictCommunicator(self.world, rank, accelerator))
            for rank, accelerator in enumerate(self.accelerators)
        ]
        self.places = [
            Places(device_of=lambda x, a=accelerator: a, nccl=lambda comm: None)  # type: ignore[misc]
            for accelerator in self.accelerators
        ]

    def place(self, rank: int, x: Any) -> DevicePlace:
        place, _ = self.places[rank].of(x)
        assert isinstance(place, DevicePlace)
        return place

    def call(self, rank: int, codec: Any, vector: Any, x: Any, ch: Channel, feedback: Any = None) -> Call:
        dtype = ch.travels_as(x.dtype)
        communicator: Any = self.calls[rank]._communicator
        return Call(communicator, self.topology, self.place(rank, x), codec, dtype, vector, 0, feedback, Tally())

    def finish(self, order: int) -> None:
        self.world.check()
        self.model.run(order)
        for rank, accelerator in enumerate(self.accelerators):
            self.places[rank].clock(accelerator.memory(4)).settle()


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with with_strict_codecs():
        yield


def perform(
    plan: Plan, order: int, *, feedback: bool = False, calls: int = 1
) -> tuple[list[np.ndarray], list[Channel], list[Any]]:
    """Execute a plan on all ranks several times with new values, and return the results and the channels."""
    ranks, channels, results, residuals = Ranks(plan.topology), [], [], []
    values = inputs(plan, "float32", integers=False)
    for rank, accelerator in enumerate(ranks.accelerators):
        ch = channel(plan.codec.name, plan.algorithm)
        feedback_of_rank = Feedback(plan.n) if feedback else None
        if feedback_of_rank is not None:
            feedback_of_rank.sent, feedback_of_rank.summed = (
                accelerator.fill(np.zeros(plan.n, "f4")) for _ in range(2)
            )  # type: ignore[assignment]
        for _ in range(calls):
            x = accelerator.fill(values[rank])
            piece = cut_evenly(plan.n, plan.topology.ranks)[rank]
            vector: Any = InPlace(x)
            out = x
            if plan.operation in (Operation.REDUCE_SCATTER, Operation.REDUCE):
                at_root = ElementRange(0, plan.n if rank == plan.root else 0)
                owned = ElementRange(piece.start, piece.stop) if plan.operation is Operation.REDUCE_SCATTER else at_root
                out = accelerator.fill(np.full(owned.size, 5, "f4"))
                vector = Reduced(x, out, owned)
            todo = [plan.steps(rank, k) for k in range(len(plan.slices))]
            call = ranks.call(rank, plan.codec, vector, x, ch, feedback_of_rank)
            work = ranks.calls[rank].planned(call, todo, ch, how=plan.algorithm.value, plain=False)
            work.wait()
            result = accelerator.read(out)
        channels.append(ch)
        results.append(result)
        residuals.append(feedback_of_rank)
    ranks.finish(order)
    return [values[0] for values in results], channels, residuals


def expected(plan: Plan, feedback: bool = False, calls: int = 1) -> tuple[list[np.ndarray], Any, Any]:
    values = inputs(plan, "float32", integers=False)
    residuals = [Feedback(plan.n) for _ in values] if feedback else None
    for _ in range(calls):
        outcome = simulate(plan, values, feedback=residuals)
    pieces = cut_evenly(plan.n, len(values))
    if plan.operation is Operation.REDUCE_SCATTER:
        return [x[piece] for x, piece in zip(outcome.values, pieces, strict=True)], outcome, residuals
    if plan.operation is Operation.REDUCE:
        return [x if rank == plan.root else x[:0] for rank, x in enumerate(outcome.values)], outcome, residuals
    return outcome.values, outcome, residuals


def plans(topology: Topology) -> Iterator[Plan]:
    for operation in (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER):
        for algorithm in ALGORITHMS:
            if refusal(operation, algorithm, topology):
                continue
            for codec, n, slices in (("int8:64", 1001, 1), ("zfp:8", 20_001, 5), ("none", 1001, 3), ("bf16", 3, 2)):
                yield lay_out(operation, n, topology, get_codec(codec), algorithm, slices)
    for operation in (Operation.BROADCAST, Operation.REDUCE):
        for slices in (1, 3):
            yield lay_out(operation, 40_001, topology, get_codec("zfp:8"), Algorithm.TWO_SHOT, slices, root=1)


def check(plan: Plan, order: int) -> None:
    results, channels, _ = perform(plan, order)
    want, outcome, _ = expected(plan)
    for rank, (result, right) in enumerate(zip(results, want, strict=True)):
        assert result.tobytes() == right.tobytes(), f"{plan} on rank {rank}"
        counters = channels[rank].counters
        assert counters.message_bytes == outcome.bytes_of(rank, "message") == plan.message_bytes(rank)
        assert counters.wire_bytes == outcome.bytes_of(rank, "wire") == plan.wire_bytes(rank)
        assert counters.hidden_s >= 0 and counters.exposed_s >= 0
    if plan.operation in (Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.BROADCAST):
        assert len({result.tobytes() for result in results}) == 1, "replicas agree"


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_plans_give_their_bits_and_bytes_in_the_order_of_streams(topology: Topology) -> None:
    for number, plan in enumerate(plans(topology)):
        check(plan, ORDERS[number % len(ORDERS)])


@pytest.mark.parametrize("order", ORDERS)
def test_residuals_are_kept_from_call_to_call(order: int) -> None:
    plan = lay_out(Operation.ALL_REDUCE, 20_000, Topology.flat(3), get_codec("int8:64"), Algorithm.TWO_SHOT, 3)
    results, channels, residuals = perform(plan, order, feedback=True, calls=3)
    want, _, simulated = expected(plan, feedback=True, calls=3)
    for result, right, mine, theirs in zip(results, want, residuals, simulated, strict=True):
        assert result.tobytes() == right.tobytes()
        assert seen(mine.sent).tobytes() == theirs.sent.tobytes()
        assert seen(mine.summed).tobytes() == theirs.summed.tobytes()
    assert channels[0].counters.calls == 3
    assert channels[0].counters.encode_s > 0


def test_later_calls_use_the_buffers_of_earlier_ones() -> None:
    ranks = Ranks(Topology.flat(2))
    allocated = []
    for _ in range(3):
        for rank, accelerator in enumerate(ranks.accelerators):
            x, ch = accelerator.fill(np.ones(5000, "f4")), channel()
            plan = lay_out(Operation.ALL_REDUCE, 5000, Topology.flat(2), ch.codec, Algorithm.TWO_SHOT, 1)
            call = ranks.call(rank, ch.codec, InPlace(x), x, ch)
            ranks.calls[rank].planned(call, [plan.steps(rank, 0)], ch, how="two-shot", plain=False).wait()
        allocated.append(ranks.calls[0]._lanes[0].pools.device.nbytes)
    assert allocated[0] > 0 and len(set(allocated)) == 1
    ranks.finish(0)


LIBRARY: dict[str, Callable[[NcclLibrary, Any, Any], object]] = {
    "all-reduce": lambda library, src, dst: library.all_reduce(dst, MPI.SUM),
    "reduce-scatter": lambda library, src, dst: library.reduce_scatter(src, dst),
    "all-gather": lambda library, src, dst: library.all_gather(src, dst),
    "broadcast": lambda library, src, dst: library.broadcast(dst, 1),
    "reduce": lambda library, src, dst: library.reduce(src, dst, 1),
}


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize(("n", "dtype"), [(12, None), (13, None), (13, np.dtype(np.float16))])
def test_collectives_of_nccl_itself(name: str, n: int, dtype: Any) -> None:
    """Equal pieces use one NCCL collective, and unequal pieces use a group.

    Values are sent in their own dtype or in 16 bits.
    """
    ranks, outs = Ranks(Topology.flat(3)), []
    contributions = [np.arange(n, dtype="f4") * (rank + 1) for rank in range(3)]
    pieces = cut_evenly(n, 3)
    for rank, accelerator in enumerate(ranks.accelerators):
        values = contributions[rank][pieces[rank]] if name == "all-gather" else contributions[rank]
        src = accelerator.fill(values)
        size = pieces[rank].stop - pieces[rank].start if name == "reduce-scatter" else n
        dst = src if name in ("all-reduce", "broadcast") else accelerator.fill(np.zeros(size, "f4"))
        tally, ch = Tally(message_bytes=8, wire_bytes=8), channel("none", Algorithm.NATIVE, dtype)
        place = ranks.place(rank, src)
        work = ranks.calls[rank].by_library(LIBRARY[name], src, dst, place, ch, tally, how="native", plain=False)
        work.wait()
        outs.append(accelerator.read(dst))
        assert ch.counters.wire_bytes == 8 and ch.counters.algorithms == {"native": 1}
    ranks.finish(1)
    total = np.sum(contributions, axis=0)
    want = {
        "all-reduce": [total] * 3,
        "reduce-scatter": [total[piece] for piece in pieces],
        "all-gather": [np.concatenate([contributions[r][piece] for r, piece in enumerate(pieces)])] * 3,
        "broadcast": [contributions[1]] * 3,
        "reduce": [np.zeros(n, "f4"), total, np.zeros(n, "f4")],
    }[name]
    for rank, (out, right) in enumerate(zip(outs, want, strict=True)):
        if name != "reduce" or rank == 1:
            assert np.array_equal(out[0], right), (name, rank)


def test_a_ring_passes_encoded_blocks_on() -> None:
    ranks, codec, got = Ranks(Topology.flat(3)), get_codec("int8:64"), []
    values = [np.random.default_rng(rank).standard_normal(300).astype("f4") for rank in range(3)]
    relays, leaving = [Relay() for _ in range(3)], [a.fill(x) for a, x in zip(ranks.accelerators, values, strict=True)]
    for _ in range(2):
        for rank, accelerator in enumerate(ranks.accelerators):
            came, ch = accelerator.fill(np.zeros(300, "f4")), channel()
            call = ranks.call(rank, codec, Exchanged(leaving[rank], came), came, ch)
            to, of = (PeerSpan((rank + by) % 3, ElementRange(0, 300)) for by in (1, -1))
            ranks.calls[rank].hop(call, to, of, relays[rank], ch).wait()
            leaving[rank] = came
            got.append((rank, accelerator.read(came)))
    for relay in relays:
        relay.end()
    ranks.finish(0)
    for number, (rank, result) in enumerate(got):
        owner = values[(rank - 1 - number // 3) % 3]
        wire, right = np.empty(codec.wire_bytes(300, owner.dtype), np.uint8), np.empty(300, "f4")
        codec.encode(owner, wire)
        codec.decode(wire, right)
        assert result[0].tobytes() == right.tobytes()


def test_a_codec_of_variable_size_is_refused_by_name() -> None:
    ranks = Ranks(Topology.flat(2))
    x, ch = ranks.accelerators[0].fill(np.zeros(100, "f4")), channel("mpc")
    call = ranks.call(0, ch.codec, InPlace(x), x, ch)
    with pytest.raises(ValueError, match=r"codec mpc: its messages vary in size.*set train.transport to mpi"):
        ranks.calls[0].planned(call, [], ch, how="two-shot", plain=False)


def test_types_and_reductions_that_nccl_lacks_are_refused() -> None:
    with pytest.raises(TypeError, match="NCCL does not support complex64"):
        find_type(np.dtype(np.complex64))
    with pytest.raises(ValueError, match="only sum, product, minimum and maximum"):
        find_operation(MPI.BAND)


# ------------------------------------------------------------------------------------------------------ planted faults

PLAN = lay_out(Operation.ALL_REDUCE, 20_000, Topology.flat(2), get_codec("int8:64"), Algorithm.TWO_SHOT, 4)
UNEVEN = lay_out(Operation.ALL_REDUCE, 5, Topology.regular(2, 2), get_codec("none"), Algorithm.HIERARCHICAL, 2)
"""In the second slice, two ranks have no messages between nodes."""


def nothing(*args: Any, **settings: Any) -> None:
    pass


def shared_buffers(pools: Any, count: int) -> list[Any]:
    lanes = [type(pools)(pools.accelerator, True, 1) for _ in range(count)]
    for lane in lanes:
        lane.device = lanes[0].device
    pools._lanes += lanes
    return lanes


def split_groups(carrier: Any) -> None:
    """Send and receive in two groups instead of one."""
    communicator, stream, accelerator = (
        carrier._order.communicator,
        carrier._lane.stream,
        carrier._lane.pools.accelerator,
    )
    for messages, move in ((carrier._sends, communicator.send), (carrier._receives, communicator.receive)):
        carrier._order.before(accelerator, stream)
        with communicator.group():
            for content, peer in messages:
                move(content, peer, stream)
        carrier._order.after(accelerator, stream)
        messages.clear()


def by_number(steps: Sequence[Any]) -> list[tuple[int, int]]:
    return [(k, 0) for k in range(len(steps))]


def unsent(carrier: Any, content: Any, peer: int, tag: int, *, varies: bool) -> int:
    if carrier.rank == 0:
        return int(content.nbytes)
    carrier._sends.append((content, peer))
    return int(content.nbytes)


def waiting(order: Any, accelerator: Any, stream: int) -> None:
    accelerator.mark(stream).wait()


def early_end(lane: Any) -> Any:
    """Record the lane's end before its last operation."""
    if not hasattr(lane, "planted"):
        lane.planted = lane.pools.accelerator.mark(lane.stream)
    return lane.planted


FAULTS: dict[str, tuple[Any, str, Any, str]] = {
    "a call does not wait for the caller's values": (
        DevicePlace,
        "lead",
        nothing,
        "no event orders (encode|copy|convert)",
    ),
    "the caller does not wait for the call": (DevicePlace, "follow", nothing, "no event orders read .* behind"),
    "the caller waits for an earlier point": (Lane, "mark", early_end, "no event orders read .* behind"),
    "NCCL's operations have no order": (GroupOrder, "before", nothing, "no event orders NCCL"),
    "two lanes share buffers": ("pools", "lanes", shared_buffers, "no event orders"),
    "sends and receives are in two groups": (
        stream_execute.StreamCarrier,
        "flush",
        split_groups,
        "no stream can continue",
    ),
    "a message is not sent": (stream_execute.StreamCarrier, "send", unsent, "rank 0 never sends what rank 1 receives"),
    "the host waits for the device": (GroupOrder, "before", waiting, "the host waits for the device"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    owner, name, function, message = FAULTS[fault]
    if owner == "pools":
        from hpcbench.comm.gpu_pools import Pools as owner  # noqa: N813
    with patch.object(owner, name, function), pytest.raises(StreamError, match=message):
        perform(PLAN, 0, calls=2)


def test_groups_in_the_order_of_the_steps_done_are_found() -> None:
    """A rank that has no message in a stage would be one group ahead of the other ranks."""
    check(UNEVEN, 1)
    with (
        patch.object(stream_execute, "_stages", by_number),
        pytest.raises(StreamError, match=r"no stream can continue|sizes differ"),
    ):
        perform(UNEVEN, 1)


def test_another_order_of_collectives_is_found() -> None:
    ranks = Ranks(Topology.flat(2))
    with pytest.raises(StreamError, match="collective 0 differs between ranks"):
        for rank, accelerator in enumerate(ranks.accelerators):
            src, ch = accelerator.fill(np.zeros(8, "f4")), channel("none", Algorithm.NATIVE)
            for name in sorted(("all-reduce", "broadcast"), reverse=rank == 1):
                call = LIBRARY[name]
                place = ranks.place(rank, src)
                ranks.calls[rank].by_library(call, src, src, place, ch, Tally(), how="native", plain=False).wait()


def test_a_residual_that_the_caller_resets_too_early_is_found() -> None:
    ranks = Ranks(Topology.flat(2))
    accelerator, ch = ranks.accelerators[0], channel()
    x, residuals = accelerator.fill(np.ones(64, "f4")), Feedback(64)
    residuals.sent, residuals.summed = (accelerator.fill(np.zeros(64, "f4")) for _ in range(2))  # type: ignore[assignment]
    plan = lay_out(Operation.ALL_REDUCE, 64, Topology.flat(2), ch.codec, Algorithm.TWO_SHOT, 1)
    call = ranks.call(0, ch.codec, InPlace(x), x, ch, residuals)
    work = ranks.calls[0].planned(call, [plan.steps(0, 0)], ch, how="two-shot", plain=False)
    with pytest.raises(StreamError, match=r"no event orders copy .* behind encode"):
        accelerator.copy(residuals.sent, accelerator.memory(256).view("f4"), CALLER)
    work.wait()


def test_a_call_that_is_never_waited_for_is_reported() -> None:
    ranks = Ranks(Topology.flat(2))
    x, ch = ranks.accelerators[0].fill(np.zeros(8, "f4")), channel("none", Algorithm.NATIVE)
    place = ranks.place(0, x)
    work = ranks.calls[0].by_library(LIBRARY["all-reduce"], x, x, place, ch, Tally(), how="native", plain=False)
    assert not work.done
    with pytest.warns(ResourceWarning, match="never called for an operation"):
        del work


def test_arrays_are_kept_until_the_work_on_them_has_ended() -> None:
    ranks = Ranks(Topology.flat(2))
    holds, works = [], []
    for rank, accelerator in enumerate(ranks.accelerators):
        for _ in range(2):
            x, ch = accelerator.fill(np.zeros(8, "f4")), channel("none", Algorithm.NATIVE)
            place = ranks.place(rank, x)
            call = LIBRARY["all-reduce"]
            works.append(ranks.calls[rank].by_library(call, x, x, place, ch, Tally(), how="native", plain=False))
    for early in works[::2]:
        early.wait()
        holds.append(early._arrays is not None)  # type: ignore[attr-defined]
    ranks.model.run(0)
    for late in works[1::2]:
        late.wait()
        holds.append(late._arrays is not None)  # type: ignore[attr-defined]
    ranks.finish(0)
    assert holds == [True, True, False, False]
