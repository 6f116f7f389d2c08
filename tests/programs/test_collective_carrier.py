"""Tests of plans executed with whole gloo collectives: bitwise equal results, sent bytes, and replicas."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from collective_ranks import FIXED, carry, execute, on_gloo, values

sys.path.insert(0, str(Path(__file__).parents[1] / "comm"))
from simulate import simulate

from hpcbench.codecs.registry import get_codec
from hpcbench.comm import steps
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.plan import Operation, Plan, lay_out
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import ElementRange
from hpcbench.contract.traffic import Algorithm
from hpcbench.programs.collective_carrier import CollectiveCarrier, count_longest_piece, count_padding
from hpcbench.programs.kernel_operators import decode, encode
from hpcbench.programs.stream_order import HostOrder
from hpcbench.programs.tensors import DTYPES

N = 9000
"""Number of elements of a vector, chosen so that its pieces differ in length."""


def two_shot(operation: Operation, n: int, dtype: torch.dtype, codec: str, topology: Topology) -> Plan:
    return lay_out(operation, n, DTYPES[dtype], topology, get_codec(codec), Algorithm.TWO_SHOT, 1, root=0)


def carried(plan: Plan, sources: list[torch.Tensor], feedback: list[Feedback] | None = None) -> list[Any]:
    def work(rank: int, backend: Any) -> Any:
        return carry(plan, sources[rank], feedback[rank] if feedback else None)(rank, backend)

    return on_gloo(len(sources), work)


def bits(x: torch.Tensor) -> bytes:
    return x.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("codec", FIXED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_all_reduce_has_the_bits_of_the_plan(codec: str, dtype: torch.dtype) -> None:
    for topology in (Topology.flat(2), Topology.regular(1, 3)):
        sources = [values(rank, N, dtype) for rank in range(topology.ranks)]
        plan = two_shot(Operation.ALL_REDUCE, N, dtype, codec, topology)
        results = carried(plan, [x.clone() for x in sources])
        expected = execute(plan, sources)
        for (out, _, backend), reference in zip(results, expected, strict=True):
            assert bits(out) == bits(reference) == bits(results[0][0])
            assert backend.calls == ["all-to-all", "all-gather"]


@pytest.mark.parametrize("operation", [Operation.ALL_REDUCE, Operation.ALL_GATHER])
@pytest.mark.parametrize("codec", ["none", "int8:256", "zfp:8"])
def test_results_equal_the_simulation_of_the_plan(codec: str, operation: Operation) -> None:
    topology = Topology.flat(3)
    plan = two_shot(operation, N, torch.float32, codec, topology)
    sources = [values(rank, N) for rank in range(3)]
    pieces = [x[slice(*plan.slices[0][rank])] for rank, x in enumerate(sources)]
    results = carried(plan, pieces if operation is Operation.ALL_GATHER else [x.clone() for x in sources])
    outcome = simulate(plan, [x.numpy() for x in sources])
    for (out, _, _), expected in zip(results, outcome.values, strict=True):
        assert np.array_equal(out.numpy(), expected)


@pytest.mark.parametrize("codec", ["none", "bf16", "int8:256:stochastic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("operation", [Operation.REDUCE_SCATTER, Operation.ALL_GATHER])
def test_half_of_the_plan_has_its_bits(operation: Operation, codec: str, dtype: torch.dtype) -> None:
    plan = two_shot(operation, N, dtype, codec, Topology.flat(3))
    sources = [values(rank, N, dtype) for rank in range(3)]
    if operation is Operation.ALL_GATHER:
        sources = [x[slice(*plan.slices[0][rank])] for rank, x in enumerate(sources)]
    for (out, _, _), reference in zip(carried(plan, sources), execute(plan, sources), strict=True):
        assert bits(out) == bits(reference)


@pytest.mark.parametrize("codec", ["none", "int8:256", "zfp:8", "fp8e4m3", "topk:0.1"])
@pytest.mark.parametrize("n", [N, 5])
@pytest.mark.parametrize("operation", [Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER])
def test_bytes_equal_the_model(operation: Operation, n: int, codec: str) -> None:
    topology = Topology.regular(3, 1)
    plan = two_shot(operation, n, torch.float32, codec, topology)
    sources = [values(rank, n) for rank in range(3)]
    if operation is Operation.ALL_GATHER:
        sources = [x[slice(*plan.slices[0][rank])] for rank, x in enumerate(sources)]
    for rank, (_, tally, backend) in enumerate(carried(plan, sources)):
        padding = count_padding(plan, rank)
        assert tally.wire_bytes == tally.network_bytes == backend.sent == plan.wire_bytes(rank) + padding
        assert tally.message_bytes == plan.message_bytes(rank)
        assert tally.coded_bytes == (0 if codec == "none" else tally.message_bytes)
        assert 0 <= padding <= 2 * count_longest_piece(plan)


def test_no_byte_is_padded_if_the_pieces_are_equal() -> None:
    plan = two_shot(Operation.ALL_REDUCE, 2 * 4096, torch.float32, "int8:256", Topology.flat(2))
    assert [count_padding(plan, rank) for rank in range(2)] == [0, 0]


def test_residuals_of_error_feedback_are_those_of_the_plan() -> None:
    plan = two_shot(Operation.ALL_REDUCE, N, torch.float32, "sign:1024", Topology.flat(2))
    ours, theirs = ([Feedback(N) for _ in range(2)] for _ in range(2))
    for _ in range(3):
        sources = [values(rank, N) for rank in range(2)]
        results = carried(plan, [x.clone() for x in sources], ours)
        expected = execute(plan, sources, theirs)
        assert bits(results[0][0]) == bits(results[1][0]) == bits(expected[0])
    for mine, other in zip(ours, theirs, strict=True):
        assert np.array_equal(mine.sent, other.sent) and np.array_equal(mine.summed, other.summed)
        assert mine.sent.any() and mine.summed.any()


@pytest.mark.parametrize("codec", ["int8:256", "none", "bf16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_exchange_encodes_long_parts_only(codec: str, dtype: torch.dtype) -> None:
    ranks, least = 3, 1000 * dtype.itemsize
    sizes = [[700, 1500, 20], [3000, 1001, 999], [0, 1200, 5]]  # elements from rank i to rank j
    sources = [values(rank, sum(sizes[rank]), dtype) for rank in range(ranks)]
    coder = get_codec(codec)

    def spans(counts: list[int]) -> list[ElementRange]:
        starts = [0, *np.cumsum(counts).tolist()]
        return [ElementRange(a, b) for a, b in pairwise(starts)]

    def work(rank: int, backend: Any) -> Any:
        sends, receives = spans(sizes[rank]), spans([row[rank] for row in sizes])
        todo = steps.all_to_all(rank, sends, receives, coded=lambda part: part.span.size * dtype.itemsize >= least)
        out = torch.empty(receives[-1].stop, dtype=dtype)
        call = CollectiveCarrier(backend, rank, Topology.flat(ranks), HostOrder()).begin(codec, dtype, 0, None)
        call.all_to_all(todo, sources[rank], sends, out, receives)
        return out, call.tally, backend

    for rank, (out, tally, backend) in enumerate(on_gloo(ranks, work)):
        expected = []
        for peer in range(ranks):
            part = sources[peer][slice(*spans(sizes[peer])[rank])]
            if peer != rank and sizes[peer][rank] * dtype.itemsize >= least:
                wire = np.empty(coder.wire_bytes(part.numel(), DTYPES[dtype]), np.uint8)
                encode(part, torch.from_numpy(wire), None, codec, dtype, 0)
                part = torch.empty_like(part)
                decode(torch.from_numpy(wire), part, codec, dtype, False)
            expected.append(part)
        assert bits(out) == bits(torch.cat(expected))
        coded = [n for peer, n in enumerate(sizes[rank]) if peer != rank and n * dtype.itemsize >= least]
        plain = [n for peer, n in enumerate(sizes[rank]) if peer != rank and n * dtype.itemsize < least]
        wire_bytes = sum(coder.wire_bytes(n, DTYPES[dtype]) for n in coded) + sum(plain) * dtype.itemsize
        assert tally.wire_bytes == backend.sent == wire_bytes
        assert tally.message_bytes == sum(coded + plain) * dtype.itemsize
