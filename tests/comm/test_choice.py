"""Tests of the choice between a plan and the MPI library's collective, with synthetic links."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.links import Link, Links, Speed, interpolate, load
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.plan_time import seconds
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm
from hpcbench.errors import UserError

FLOAT = np.dtype(np.float32)
SLOW = Links(Link(2e-6, 8e9), Link(2e-5, 1e8), (("int8:256", Speed(2e9, 2e9, 2e-5, 0.26)),))
TWO_NODES = Topology.regular(2, 4)
SUMS = [Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER]


def chosen(nbytes: int, links: Links, operation: Operation = Operation.ALL_REDUCE, **options: object) -> Plan:
    settings = {"algorithm": Algorithm.AUTO, **options}
    return plan(Request(operation, nbytes // 4, FLOAT, TWO_NODES, get_codec("int8"), **settings), links)


@pytest.mark.parametrize("operation", SUMS)
def test_small_messages_go_by_the_library_and_large_ones_through_the_codec(operation: Operation) -> None:
    algorithms = [chosen(1 << k, SLOW, operation).algorithm for k in range(8, 28)]
    assert algorithms[0] is Algorithm.NATIVE and algorithms[-1] is not Algorithm.NATIVE
    first = next(k for k, algorithm in enumerate(algorithms) if algorithm is not Algorithm.NATIVE)
    assert Algorithm.NATIVE not in algorithms[first:], "the codec pays above some size"


@given(
    operation=st.sampled_from(SUMS),
    size=st.integers(10, 28),
    bandwidth=st.floats(1e7, SLOW.within.bytes_per_s),
    more=st.floats(1, 1000),
    ratio=st.floats(0.05, 0.6),
    speed=st.floats(1e8, 2e10),
)
def test_more_bandwidth_never_makes_compression_more_attractive(
    operation: Operation, size: int, bandwidth: float, more: float, ratio: float, speed: float
) -> None:
    """Links between nodes are never faster than links within nodes.

    If links between nodes were faster, the library would use another algorithm.
    """
    codecs = (("int8:256", Speed(speed, speed, 2e-5, ratio)),)
    wide = min(bandwidth * more, SLOW.within.bytes_per_s)
    slower = chosen(1 << size, replace(SLOW, between=Link(2e-5, bandwidth), codecs=codecs), operation)
    faster = chosen(1 << size, replace(SLOW, between=Link(2e-5, wide), codecs=codecs), operation)
    if slower.algorithm is Algorithm.NATIVE:
        assert faster.algorithm is Algorithm.NATIVE


def test_measured_times_override_the_model() -> None:
    size = 1 << 24
    by_model = chosen(size, SLOW)
    assert by_model.algorithm is not Algorithm.NATIVE and "expected" in by_model.why
    native = (("all-reduce", size, 1.0),)
    row = ("all-reduce", "int8:256", size, "two-shot", 4)
    slow = replace(SLOW, native=native, measured=((*row, 0.96),))
    assert chosen(size, slow).algorithm is Algorithm.NATIVE, "a gain within the measurement error does not count"
    fast = replace(SLOW, native=native, measured=((*row, 0.9), (*row[:3], "doubling", 1, 0.94)))
    best = chosen(size, fast)
    assert (best.algorithm, len(best.slices)) == (Algorithm.TWO_SHOT, 4) and "measured" in best.why
    assert chosen(size, fast, algorithm=Algorithm.ENCODED).algorithm is Algorithm.TWO_SHOT
    assert chosen(size, fast, algorithm=Algorithm.RING).algorithm is Algorithm.RING, "a requested algorithm stays"
    assert chosen(size, fast, Operation.ALL_GATHER).why == chosen(size, SLOW, Operation.ALL_GATHER).why


@pytest.mark.parametrize("ratio", [0.3, 0.6, 0.7, 0.75, 0.85, 0.95])
def test_a_model_has_to_promise_more_than_a_measurement(ratio: float) -> None:
    size, operation = 1 << 24, Operation.REDUCE_SCATTER
    links = replace(SLOW, codecs=(("int8:256", Speed(2e10, 2e10, 2e-5, ratio)),))
    encoded = seconds(chosen(size, links, operation, algorithm=Algorithm.ENCODED), links)
    library = seconds(chosen(size, links, operation, algorithm=Algorithm.NATIVE), links)
    pays = encoded <= 0.8 * library
    assert pays == (ratio < 0.78), "the links decide, so the shares are those of the codec"
    assert (chosen(size, links, operation).algorithm is not Algorithm.NATIVE) == pays

    slow_library = replace(links, native=((operation.value, size, 10 * library),))
    assert (chosen(size, slow_library, operation).algorithm is not Algorithm.NATIVE) == pays, (
        "the model leaves out the same of the library's and the codec's time"
    )
    fast_library = replace(links, native=((operation.value, size, encoded / 0.81),))
    assert chosen(size, fast_library, operation).algorithm is Algorithm.NATIVE


def test_a_chain_costs_more_the_longer_it_is() -> None:
    plans = [
        plan(Request(Operation.BROADCAST, 1 << 22, FLOAT, Topology.flat(p), get_codec("int8"), slices=4), SLOW)
        for p in (2, 4, 16)
    ]
    times = [seconds(each, SLOW) for each in plans]
    hop = (1 << 22) * 0.26 / 8e9 + 2e-6
    assert np.diff(times) == pytest.approx([2 * hop, 12 * hop]), "of a slice of 4 MiB"


def test_measured_times_say_nothing_of_other_topologies() -> None:
    size = 1 << 24
    rows = (("all-reduce", "int8:256", size, "two-shot", 1, 1e-9),)
    here = replace(SLOW, measured=rows, ranks_per_node=(4, 4))
    elsewhere = replace(here, ranks_per_node=(8, 8))
    assert here.foreign(TWO_NODES) is None and "measured" in chosen(size, here).why
    assert elsewhere.foreign(TWO_NODES) == "measured with 8 + 8 ranks on 2 nodes, but the run has 2 nodes x 4 ranks"
    assert chosen(size, elsewhere).why == chosen(size, SLOW).why


def test_times_between_sizes_and_beyond() -> None:
    points = [(1024, 1.0), (4096, 4.0), (1 << 20, 64.0)]
    assert interpolate(points, 1024) == 1.0
    assert interpolate(points, 2048) == pytest.approx(2.0)
    assert interpolate(points, 512) == 1.0, "smaller ones take no longer"
    assert interpolate(points, 256) is None
    assert interpolate(points, 1 << 15) is None, "too far from both sizes"
    assert interpolate(points, 8192) == 8.0
    assert interpolate(points, 1 << 21) == 128.0
    assert interpolate(points, (1 << 21) + 1) is None
    assert interpolate([], 1024) is None and interpolate(points, 0) is None


def test_one_node_has_no_link_between(tmp_path: Path) -> None:
    document = {
        "schema": 1,
        "within": {"latency_s": 1e-6, "bytes_per_s": 1e9},
        "between": None,
        "codecs": {},
        "native": [],
        "measured": [],
        "ranks_per_node": [4],
        "date": "2026-01-01T00:00:00Z",
    }
    file = tmp_path / "links.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    links = load(file)
    assert links.between == links.within == Link(1e-6, 1e9) and links.ranks_per_node == (4,)
    file.write_text(json.dumps({**document, "ranks_per_node": "four"}), encoding="utf-8")
    with pytest.raises(UserError, match="measure again"):
        load(file)


def test_times_measured_over_another_transport_are_not_used() -> None:
    over_mpi = replace(SLOW, native=(("all-reduce", 1 << 20, 1e-6),), blocking=(("all-reduce", 1 << 20),))
    assert over_mpi.over("mpi") is over_mpi and over_mpi.other_transport("mpi") is None
    assert chosen(1 << 20, over_mpi).algorithm is Algorithm.NATIVE
    over_nccl = over_mpi.over("nccl")
    assert chosen(1 << 20, over_nccl).algorithm is not Algorithm.NATIVE
    assert not over_nccl.blocks("all-reduce", 1 << 20, TWO_NODES)
    assert (over_nccl.within, over_nccl.between, over_nccl.codecs) == (SLOW.within, SLOW.between, SLOW.codecs)
    reason = over_mpi.other_transport("nccl")
    assert reason is not None and reason.startswith("measured over mpi, but the run uses nccl: ")
