"""Tests of plans without MPI: the results of their steps on every rank, and matching sends and receives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import FLAT, IRREGULAR, PAIRS, REGULAR, carried_out, check, inputs, lay_out, wholes

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.plan import ROOTED, Operation
from hpcbench.comm.planner import Request, plan, refusal
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm

NONE = get_codec("none")
CODECS = ["zfp:8", "int8:256", "int4:32", "fp16", "sign:1024", "topk:0.1", "mpc:1", "xpk"]
LOSSLESS = ("none", "mpc:1", "xpk")


@pytest.mark.parametrize("topology", FLAT + REGULAR + IRREGULAR, ids=str)
@pytest.mark.parametrize(("operation", "algorithm"), PAIRS)
def test_results_are_exact_and_every_send_is_received(operation, algorithm, topology):
    if refusal(operation, algorithm, topology):
        with pytest.raises(ValueError, match=r"over .*(same number of ranks|only all-reduce)"):
            plan(Request(operation, 100, np.dtype("f4"), topology, NONE, algorithm=algorithm))
        return
    large = topology.ranks > 16
    for n in (7, 4099) if large else (0, 1, 7, 1000, 4099, 70000 if topology.ranks < 5 else 9001):
        for slices in (1, 2) if large else (1, 2, 5):
            for root in {0, topology.ranks // 2, topology.ranks - 1} if operation in ROOTED else {0}:
                check(lay_out(operation, n, topology, NONE, algorithm, slices, root))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("topology", [FLAT[4], REGULAR[1], IRREGULAR[0]], ids=str)
def test_every_rank_holds_the_same_bits_with_every_codec(topology, codec):
    for operation, algorithm in PAIRS:
        if not refusal(operation, algorithm, topology):
            for n in (1, 1001, 9001):
                check(lay_out(operation, n, topology, get_codec(codec), algorithm, 2))


@pytest.mark.parametrize(("operation", "algorithm"), PAIRS)
def test_float64_stays_float64(operation, algorithm):
    for codec in LOSSLESS:
        check(
            plan(Request(operation, 3001, np.dtype("f8"), REGULAR[0], get_codec(codec), algorithm=algorithm)), "float64"
        )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_topology_size_and_order_of_ranks(data):
    operation, algorithm = data.draw(st.sampled_from(PAIRS))
    if algorithm in (Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_ENCODED):
        nodes, per_node = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
        labels = data.draw(st.permutations([node for node in range(nodes) for _ in range(per_node)]))
    else:
        labels = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    topology = Topology.by_label(labels)
    n, slices = data.draw(st.integers(0, 20000)), data.draw(st.sampled_from([None, 1, 2, 3, 7]))
    root = data.draw(st.integers(0, topology.ranks - 1))
    check(lay_out(operation, n, topology, NONE, algorithm, slices, root), order=data.draw(st.integers(0, 99)))


@pytest.mark.parametrize("algorithm", [Algorithm.AUTO, Algorithm.ENCODED])
@pytest.mark.parametrize("operation", Operation, ids=lambda o: o.value)
def test_a_chosen_plan_equals_a_requested_one(operation, algorithm):
    chosen = set()
    for topology in FLAT + REGULAR[:3] + IRREGULAR:
        for n in (0, 1, 1000, 200_000):
            planned = plan(Request(operation, n, np.dtype("f4"), topology, NONE, algorithm=algorithm))
            chosen.add(planned.algorithm)
            if planned.algorithm is not Algorithm.NATIVE:
                check(planned)
    assert algorithm is Algorithm.AUTO or Algorithm.NATIVE not in chosen


def test_sums_do_not_depend_on_the_order_of_the_ranks():
    codec = get_codec("zfp:8")
    for topology in (FLAT[6], REGULAR[1]):
        for operation, algorithm in PAIRS:
            if refusal(operation, algorithm, topology):
                continue
            planned = plan(Request(operation, 5000, np.dtype("f4"), topology, codec, algorithm=algorithm))
            values = inputs(planned, "float32", integers=False)
            calm = wholes(planned, carried_out(planned, values))
            for order in range(3):
                for result, other in zip(calm, wholes(planned, carried_out(planned, values, order=order)), strict=True):
                    assert result.tobytes() == other.tobytes()
