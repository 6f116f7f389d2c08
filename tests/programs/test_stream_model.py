"""Tests of encoded operations on a strict model of CUDA streams and NCCL: results of the plan, and planted faults."""

from collections.abc import Callable
from typing import Any

import collective_ranks
import pytest
import torch
from collective_ranks import execute
from nccl_model import Communicator, ModelOrder, RankGroup
from stream_model import Event, Model, StreamError
from test_collective_carrier import two_shot
from torch.utils._python_dispatch import _disable_current_modes

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Channel, Dimension, MessageKind, Phase
from hpcbench.comm.plan import Operation
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm
from hpcbench.programs import collective_carrier
from hpcbench.programs.account import Account, CallCounts
from hpcbench.programs.collective_carrier import CollectiveCall, CollectiveCarrier
from hpcbench.programs.stream_order import CudaOrder, StreamOrder
from hpcbench.programs.streamed_group import StreamedGroup
from hpcbench.programs.tensors import DTYPES

RANKS, N = 2, 4096


def values(of: int, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    with _disable_current_modes():
        return collective_ranks.values(of, n, dtype)


SEEDS = range(4)


class Ranks:
    """Simulated ranks with one streamed group each, all on the same model of streams and NCCL."""

    def __init__(self, codec: str = "int8:256", ranks: int = RANKS, *, feedback: bool = False) -> None:
        self.model, self.size = Model(), ranks
        self.communicator = Communicator(self.model, ranks)
        self.channel = Channel(
            Dimension.DP, Phase.BACKWARD, MessageKind.GRAD, get_codec(codec), Algorithm.ENCODED, feedback=feedback
        )
        self.orders = [ModelOrder(self.model) for _ in range(ranks)]
        self.accounts, self.row = [Account() for _ in range(ranks)], CallCounts()
        topology = Topology.flat(ranks)
        self.groups = [
            StreamedGroup(
                "group replicas",
                rank,
                topology,
                self.orders[rank],
                lambda rank=rank: RankGroup(self.communicator, rank),  # type: ignore[misc]
                self.accounts[rank],
            )
            for rank in range(ranks)
        ]

    def reduce(self, rank: int, x: torch.Tensor, operation: Operation = Operation.ALL_REDUCE) -> Any:
        """Start an in-place sum, or a reduce-scatter into new memory, and return the handle."""
        group, average = self.groups[rank], False
        out = x if operation is Operation.ALL_REDUCE else torch.empty(x.numel() // self.size, dtype=x.dtype)
        plan = group.lay(operation, x.numel(), DTYPES[x.dtype], self.channel)
        assert plan is not None
        return group.reduce(operation, [out], [x], self.channel, self.row, average=average)([plan])

    def gather(self, rank: int, x: torch.Tensor) -> Any:
        out = torch.empty(x.numel() * self.size, dtype=x.dtype)
        plan = self.groups[rank].lay(Operation.ALL_GATHER, out.numel(), DTYPES[x.dtype], self.channel)
        assert plan is not None
        return self.groups[rank].all_gather([out], [x], self.channel, self.row)([plan])

    def play(self, work: Callable[[int], torch.Tensor], seed: int = 2) -> list[torch.Tensor]:
        """Run `work` on each rank, then run all streams. Return the results."""
        results = []
        for rank in range(self.size):
            with self.model.rank(rank):
                results.append(work(rank))
        self.communicator.check()
        self.model.run(seed)
        return [self.model.read(result) for result in results]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("codec", ["int8:256", "none", "zfp:8"])
def test_late_work_in_any_order_has_the_bits_of_the_plan(codec: str, ranks: int, seed: int) -> None:
    played = Ranks(codec, ranks)

    def work(rank: int) -> torch.Tensor:
        x = played.model.tensor(values(rank, N)) * 1  # computed on the caller's stream
        handle = played.reduce(rank, x)
        handle.wait()
        return x + 0

    results = played.play(work, seed)
    plan = two_shot(Operation.ALL_REDUCE, N, torch.float32, codec, Topology.flat(ranks))
    expected = execute(plan, [values(rank, N) for rank in range(ranks)])
    for result in results:
        assert torch.equal(result, expected[0])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_many_calls_under_way_and_released_by_their_caller(dtype: torch.dtype, seed: int) -> None:
    played = Ranks("int8:256")

    def work(rank: int) -> torch.Tensor:
        handles = []
        for k in range(3):
            x = played.model.tensor(values(10 * k + rank, N, dtype))
            handles.append(played.reduce(rank, x * 2, Operation.REDUCE_SCATTER))
            handles.append(played.gather(rank, x * 3))
            handles.append(played.reduce(rank, x))
            del x  # only the operations keep the tensor alive
        for handle in handles:
            handle.wait()
        return torch.cat([handle.result[0].float() for handle in handles])

    first, second = (result.split((N // 2, 2 * N, N) * 3) for result in played.play(work, seed))
    for k in range(3):
        mine, other = (values(10 * k + rank, N, dtype).float() for rank in range(RANKS))
        halves, joined, total = torch.cat([first[3 * k], second[3 * k]]), *first[3 * k + 1 : 3 * k + 3]
        assert float((halves - 2 * (mine + other)).abs().max()) < 0.4
        assert float((joined - 3 * torch.cat([mine, other])).abs().max()) < 0.2
        assert float((total - mine - other).abs().max()) < 0.2
        assert torch.equal(joined, second[3 * k + 1]) and torch.equal(total, second[3 * k + 2])


def test_an_exchange_waits_for_its_values() -> None:
    played = Ranks("int8:256")

    def work(rank: int) -> torch.Tensor:
        x, out = played.model.tensor(values(rank, N)), torch.empty(N)
        half = [N // 2, N // 2]
        played.groups[rank].all_to_all(out, x, (half, half), played.channel, played.row, min_bytes=16).wait()
        return out * 1

    for rank, result in enumerate(played.play(work)):
        expected = torch.cat([values(peer, N)[rank * N // 2 : (rank + 1) * N // 2] for peer in range(2)])
        assert float((result - expected).abs().max()) < 0.05


def test_residuals_are_kept_in_order() -> None:
    played = Ranks("sign:1024", feedback=True)

    def work(rank: int) -> torch.Tensor:
        total = torch.zeros(N)
        for _ in range(4):
            x = played.model.tensor(values(7, N))
            played.groups[rank]._residuals.of("all-reduce", x)
            played.reduce(rank, x).wait()
            total += x
        return total

    first, second = played.play(work)
    assert torch.equal(first, second)


def test_tensors_are_released_and_times_are_counted_after_the_work() -> None:
    played = Ranks()

    def work(rank: int) -> torch.Tensor:
        x = played.model.tensor(values(rank, N))
        played.reduce(rank, x).wait()
        return x

    under_way = [order._under_way for order in played.orders]
    played.play(work)
    assert [len(entries) for entries in under_way] == [1, 1]
    assert played.row.encode_s == 0 and played.row.wire_bytes > 0
    for rank in range(RANKS):
        with played.model.rank(rank):
            played.groups[rank].stop(0)
    assert [len(entries) for entries in under_way] == [0, 0]
    assert played.row.encode_s > 0 and played.row.decode_s > 0


def test_a_call_during_the_capture_of_a_graph_is_refused_by_name() -> None:
    played = Ranks()
    with played.model.rank(0):
        x = played.model.tensor(values(0, N))
        played.orders[0].cuda.capturing = True
        with pytest.raises(RuntimeError, match="all-reduce of group replicas was called during CUDA graph capture"):
            played.reduce(0, x)


def sums(played: Ranks) -> Callable[[int], torch.Tensor]:
    """Return the work of a rank that sums twice and releases its tensors immediately."""

    def work(rank: int) -> torch.Tensor:
        for k in range(2):
            x = played.model.tensor(values(k + rank, N)) * 1
            handle = played.reduce(rank, x)
            del x
        handle.wait()
        out: torch.Tensor = handle.result[0] + 0
        return out

    return work


def deaf_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the private stream ignore the caller's stream."""

    def follow_caller(order: Any) -> Any:
        order._stream = order._stream or order._cuda.Stream()
        return order._cuda.stream(order._stream)

    monkeypatch.setattr(CudaOrder, "follow_caller", follow_caller)


def deaf_waiter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `wait` a no-op."""
    monkeypatch.setattr("nccl_model.Handle.wait", lambda handle: None)


def unawaited_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode without waiting for the collective."""

    def gather(carrier: CollectiveCarrier, wire: torch.Tensor) -> torch.Tensor:
        out = wire.new_empty(carrier.topology.ranks * wire.numel())
        carrier.backend._allgather_base(out, wire, None)
        return out

    monkeypatch.setattr(CollectiveCarrier, "gather", gather)


def forgotten_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not keep the caller's tensors alive."""
    monkeypatch.setattr(StreamOrder, "keep", lambda order, tensors, at_end: None)
    monkeypatch.setattr(ModelOrder, "make_handle", lambda order, result: None)


def foreign_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocate a temporary buffer on the caller's stream and free it immediately."""
    real = CollectiveCall._sum

    def planted(call: CollectiveCall, received: torch.Tensor, plan: Any, source: torch.Tensor) -> torch.Tensor:
        order: Any = call._carrier.order
        with order._cuda.stream(order._model._callers[order._model._rank]):
            copied = torch.empty_like(received)
        copied.copy_(received)
        return real(call, copied, plan, source)

    monkeypatch.setattr(CollectiveCall, "_sum", planted)


def reused_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one message buffer for all calls, and a new stream for each call."""
    buffers: dict[Any, torch.Tensor] = {}
    real, follow = collective_carrier.CollectiveCarrier.exchange, CudaOrder.follow_caller

    def exchange(carrier: Any, received: list[int], sent: list[int], wire: torch.Tensor) -> torch.Tensor:
        if id(carrier) not in buffers:
            buffers[id(carrier)] = torch.empty_like(wire)
        buffers[id(carrier)].copy_(wire)
        return real(carrier, received, sent, buffers[id(carrier)])

    def follow_caller(order: Any) -> Any:
        order._stream = None
        return follow(order)

    monkeypatch.setattr(CollectiveCarrier, "exchange", exchange)
    monkeypatch.setattr(CudaOrder, "follow_caller", follow_caller)


def host_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a sum on the host although nothing has waited for the sum."""
    real = CollectiveCall._encode

    def planted(call: CollectiveCall, source: torch.Tensor, wire: torch.Tensor, residual: Any) -> None:
        assert float(source.abs().max()) >= 0
        real(call, source, wire, residual)

    monkeypatch.setattr(CollectiveCall, "_encode", planted)


FAULTS = {
    deaf_stream: r"no event orders hpcbench::\w+ on stream 'private .* \(collective_carrier.py:\d+\) behind aten::mul",
    deaf_waiter: r"memory \(coll.* of stream 'private .*' is freed before the end of all-to-all of rank 0",
    unawaited_collective: r"no event orders hpcbench::decode .*\) behind all-gather of rank 0 \(test_stream_model.py",
    forgotten_tensors: r"memory \(.*\) of stream 'caller .*' is freed before the end of hpcbench::\w+ on stream 'priv",
    foreign_buffers: r"memory \(test_.*\) of stream 'caller .*' is freed before the end of .*_ on stream 'private",
    reused_buffer: r"no event orders aten::copy_ on stream 'private .*, 1' .* behind aten::copy_ on stream 'priv",
    host_read: r"the host reads by item \(test_stream_model.*\) what it has not waited for: aten::",
}
"""Planted faults, and the error that names both conflicting calls."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found_with_both_places(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Ranks("int8:256", 3 if fault in (foreign_buffers, host_read) else 2)
    fault(monkeypatch)
    with pytest.raises(StreamError, match=FAULTS[fault]):
        played.play(sums(played))


def test_without_a_fault_the_same_work_is_in_order() -> None:
    for ranks in (2, 3):
        played = Ranks("int8:256", ranks)
        first, *others = played.play(sums(played))
        assert all(torch.equal(first, other) for other in others)


def test_another_order_of_collectives_on_two_ranks_names_both_places() -> None:
    played = Ranks()

    def work(rank: int) -> torch.Tensor:
        x, y = (played.model.tensor(values(rank, n)) for n in (N, 2 * N))
        for each in (x, y) if rank == 0 else (y, x):
            played.reduce(rank, each).wait()
        return x

    places = r"all-to-all of rank 1 \(collective_carrier.py:\d+\), and all-to-all of rank 0 \(collective_carrier"
    with pytest.raises(StreamError, match="collective 0 differs between ranks: " + places):
        played.play(work)


def test_a_collective_that_one_rank_never_makes_is_named() -> None:
    played = Ranks()

    def work(rank: int) -> torch.Tensor:
        x = played.model.tensor(values(rank, N))
        if rank == 0:
            played.reduce(rank, x).wait()
        return x

    with pytest.raises(StreamError, match=r"ranks \[1\] never make the collective of all-to-all of rank 0 \(coll"):
        played.play(work)


def test_a_caller_that_changes_its_tensor_too_early_is_found() -> None:
    played = Ranks()

    def work(rank: int) -> torch.Tensor:
        x = played.model.tensor(values(rank, N))
        played.gather(rank, x)
        return x.zero_()

    with pytest.raises(StreamError, match=r"no event orders aten::zero_ .*test_stream_model.*behind hpcbench::encode"):
        played.play(work)


def test_work_that_waits_for_an_event_of_nobody_cannot_continue() -> None:
    played = Ranks()
    with played.model.rank(0):
        stream = played.model.new_stream("other")
        event = Event(played.model, stream)
        event.clock[stream.name] = 5
        played.model.current.wait_event(event)
    with pytest.raises(StreamError, match="no stream can continue: wait"):
        played.model.run(0)
