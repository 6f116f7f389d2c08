"""Tests of the bytes that plans send: closed forms, sizes of encoded data, traffic between nodes, and plans as text."""

import itertools

import numpy as np
import pytest
from plan_cases import FLAT, IRREGULAR, PAIRS, REGULAR, Algorithm, Operation, Topology, carried_out, inputs

from hpcbench.codecs.registry import get_codec
from hpcbench.comm import steps
from hpcbench.comm.plan import ROOTED, Plan
from hpcbench.comm.planner import Request, plan, refusal
from hpcbench.contract.shards import ElementRange

F4 = np.dtype("f4")
CODECS = ["none", "zfp:8", "int8:256", "int4:32", "fp16", "sign:1024"]
SIZES = (0, 1, 7, 1001, 9001)


def planned(operation, n, topology, codec, algorithm, **more) -> Plan:
    return plan(Request(operation, n, F4, topology, get_codec(codec), algorithm=algorithm, **more))


def cases(topologies, sizes=SIZES, slices=(1, 3)):
    for (operation, algorithm), topology, n, count in itertools.product(PAIRS, topologies, sizes, slices):
        if not refusal(operation, algorithm, topology):
            yield operation, algorithm, topology, n, count


def vectors_sent(operation, algorithm, p) -> int:
    """Return how many times all ranks together send the vector."""
    if algorithm is Algorithm.DOUBLING:
        core = 1 << (p.bit_length() - 1)
        levels = core.bit_length() - 1
        return core * levels + 2 * (p - core)
    return (2 if operation is Operation.ALL_REDUCE else 1) * (p - 1)


@pytest.mark.parametrize("topology", FLAT + REGULAR + IRREGULAR, ids=str)
def test_message_bytes_of_all_ranks_equal_the_closed_form(topology):
    for operation, algorithm, _, n, count in cases([topology]):
        laid = planned(operation, n, topology, "none", algorithm, slices=count)
        total = sum(laid.message_bytes(rank) for rank in range(topology.ranks))
        assert total == vectors_sent(operation, algorithm, topology.ranks) * n * F4.itemsize, laid
        if topology.ranks <= 9:
            outcome = carried_out(laid, inputs(laid, "float32"))
            for rank in range(topology.ranks):
                assert outcome.bytes_of(rank) == laid.message_bytes(rank), laid


@pytest.mark.parametrize("codec", CODECS)
def test_wire_bytes_are_those_of_the_encoded_messages(codec):
    for operation, algorithm, topology, n, count in cases([FLAT[2], FLAT[4], *REGULAR[:2]], (1, 1001, 9001)):
        laid = planned(operation, n, topology, codec, algorithm, slices=count)
        outcome = carried_out(laid, inputs(laid, "float32", integers=False))
        for rank in range(topology.ranks):
            sent = [s for s in outcome.sent if s.source == rank]
            assert laid.wire_bytes(rank) == sum(s.wire for s in sent), laid
            assert all(s.wire == laid.codec.wire_bytes(s.span.size, F4) for s in sent if s.coded), laid
            assert all(s.wire == s.message for s in sent if not s.coded), laid
            left = sum(s.wire for s in sent if not topology.near(rank, s.target))
            assert laid.wire_bytes(rank, between_nodes=True) == left, laid


def test_wire_bytes_of_codecs_whose_size_depends_on_the_values_are_at_most_the_plans():
    for codec, (operation, algorithm, topology, n, count) in itertools.product(
        ("mpc:1", "xpk", "topk:0.01"), cases([FLAT[4], REGULAR[0]], (1001, 9001))
    ):
        laid = planned(operation, n, topology, codec, algorithm, slices=count)
        outcome = carried_out(laid, inputs(laid, "float32", integers=False))
        for rank in range(topology.ranks):
            assert outcome.bytes_of(rank, "wire") <= laid.wire_bytes(rank), laid


@pytest.mark.parametrize("algorithm", [Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_ENCODED], ids=lambda a: a.value)
@pytest.mark.parametrize("topology", REGULAR, ids=str)
def test_a_hierarchical_all_reduce_sends_the_minimum_between_nodes(topology, algorithm):
    """Each of N nodes sends exactly 2 (N-1)/N of the vector if its length is a multiple of N."""
    n, nodes = topology.ranks * 64 * 5, topology.nodes
    for count in (1, 5):
        laid = planned(Operation.ALL_REDUCE, n, topology, "none", algorithm, slices=count)
        for members in topology.members:
            left = sum(laid.wire_bytes(rank, between_nodes=True) for rank in members)
            assert left * nodes == 2 * (nodes - 1) * n * F4.itemsize, laid
        assert laid.busiest_link() == 2 * (nodes - 1) * n * F4.itemsize // nodes
        flat = planned(Operation.ALL_REDUCE, n, topology, "none", Algorithm.TWO_SHOT, slices=count)
        assert flat.busiest_link() == topology.per_node * laid.busiest_link(), "two-shot sends the values of every rank"


@pytest.mark.parametrize("topology", REGULAR[:3], ids=str)
def test_a_broadcast_in_slices_enters_each_node_once(topology):
    for root in range(topology.ranks):
        laid = planned(Operation.BROADCAST, 5000, topology, "none", Algorithm.RING, slices=4, root=root)
        left = sum(laid.wire_bytes(rank, between_nodes=True) for rank in range(topology.ranks))
        assert left == (topology.nodes - 1) * 5000 * F4.itemsize


@pytest.mark.parametrize(("operation", "algorithm"), PAIRS)
def test_slices_tile_the_vector_and_begin_on_chunks(operation, algorithm):
    for _, _, topology, n, count in cases([FLAT[2], FLAT[6], *REGULAR[:2]], (0, 1, 1001, 200_000), (1, 4)):
        if refusal(operation, algorithm, topology):
            continue
        laid = planned(operation, n, topology, "none", algorithm, slices=count)
        spans = sorted(span for pieces in laid.slices for span in pieces if span.size)
        assert sum(span.size for span in spans) == n
        assert [a.stop for a in spans[:-1]] == [b.start for b in spans[1:]]
        assert not spans or (spans[0].start, spans[-1].stop) == (0, n)
        if n == 200_000 and operation in (Operation.ALL_REDUCE, *ROOTED):
            assert all(span.start % 1024 == 0 for span in spans)


@pytest.mark.parametrize("algorithm", [Algorithm.DOUBLING, Algorithm.HOMOMORPHIC], ids=lambda a: a.value)
@pytest.mark.parametrize("operation", [Operation.REDUCE_SCATTER, Operation.ALL_GATHER], ids=lambda o: o.value)
def test_algorithms_for_all_reduce_only_are_refused_elsewhere(operation, algorithm):
    refused = f"{algorithm.value} does not support {operation.value}"
    message = f"{refused} over 1 nodes x 4 ranks: the algorithm supports only all-reduce"
    with pytest.raises(ValueError, match=message):
        planned(operation, 100, FLAT[3], "int8:256", algorithm)


@pytest.mark.parametrize("operation", ROOTED, ids=lambda o: o.value)
def test_homomorphic_sums_do_not_broadcast_or_reduce(operation):
    assert refusal(operation, Algorithm.HOMOMORPHIC, FLAT[3]) == "the algorithm supports only all-reduce"
    assert all(refusal(operation, algorithm, FLAT[3]) is None for algorithm in (Algorithm.DOUBLING, Algorithm.RING))


@pytest.mark.parametrize("algorithm", [Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_ENCODED], ids=lambda a: a.value)
def test_hierarchies_of_unequal_nodes_are_refused(algorithm):
    with pytest.raises(
        ValueError, match=r"over 3 ranks on 2 nodes, 2 \+ 1: the algorithm requires the same number of ranks on"
    ):
        planned(Operation.ALL_REDUCE, 100, Topology((0, 0, 1)), "none", algorithm)


@pytest.mark.parametrize("topology", [FLAT[0], FLAT[6], *REGULAR, *IRREGULAR], ids=str)
def test_plans_print_their_messages(topology):
    for (operation, algorithm), n in itertools.product(PAIRS, (0, 9001)):
        if not refusal(operation, algorithm, topology):
            laid = planned(operation, n, topology, "zfp:8", algorithm, slices=1)
            head, *lines = str(laid).splitlines()
            assert head.startswith(f"{operation.value} of {n} float32 over {topology}: {algorithm.value}, codec zfp:8")
            assert len(lines) == len(laid.steps(0, 0))
            assert sum(int(line.split(": ")[1].split()[0]) for line in lines) == laid.message_bytes(0)
            assert sum(int(line.split(" as ")[1].split()[0]) for line in lines) == laid.wire_bytes(0)
    assert "by the MPI library" in str(planned(Operation.ALL_REDUCE, 9, topology, "none", Algorithm.NATIVE))


def test_all_to_all_pairs_every_part():
    """The count that rank i sends to rank j equals the count that rank j expects, and zero counts send no message."""
    random = np.random.default_rng(0)
    for p in range(1, 10):
        counts = random.integers(0, 5, (p, p))
        counts[random.random((p, p)) < 0.3] = 0

        def spans(row):
            return [ElementRange(int(stop - size), int(stop)) for size, stop in zip(row, np.cumsum(row), strict=True)]

        programs = [
            steps.all_to_all(rank, spans(counts[rank]), spans(counts[:, rank]), coded=lambda _: True)
            for rank in range(p)
        ]
        sent = {(r, part.peer): part.span.size for r, todo in enumerate(programs) for s in todo for part in s.sends}
        came = {(part.peer, r): part.span.size for r, todo in enumerate(programs) for s in todo for part in s.receives}
        assert sent == came == {(i, j): counts[i, j] for i in range(p) for j in range(p) if i != j and counts[i, j]}
