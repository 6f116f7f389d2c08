"""Tests that every operation on real ranks gives the simulated results and byte counts on every rank."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from collective_cases import Told, cases, exact, foretold, planned, topologies

from hpcbench.comm.plan import Operation
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import (
    all_gather_bytes,
    all_reduce_bytes,
    count_elements,
    cut_evenly,
    reduce_scatter_bytes,
)
from hpcbench.contract.traffic import Algorithm

WORKER = Path(__file__).with_name("collectives_worker.py")
RANKS = [1, 2, 3, *(pytest.param(ranks, marks=pytest.mark.long) for ranks in (5, 8))]
BYTES = {
    Operation.ALL_REDUCE: all_reduce_bytes,
    Operation.REDUCE_SCATTER: reduce_scatter_bytes,
    Operation.ALL_GATHER: all_gather_bytes,
}


def by_case(results):
    """Yield each case with its topology and the reports of its ranks."""
    reports = defaultdict(list)
    for line in results:
        reports[line["comm"], line["case"], line["ranks"]].append(line)
    lists = {}
    for (comm, index, ranks), lines in reports.items():
        world = comm.startswith("world")
        place = int(comm.split()[1]) if world else 1
        topology = topologies(ranks)[place] if world else Topology.flat(ranks)
        if (topology, place) not in lists:
            lists[topology, place] = list(cases(topology, few=place > 0))
        yield lists[topology, place][index], topology, sorted(lines, key=lambda line: line["rank"])


@pytest.mark.parametrize("ranks", RANKS)
def test_results_and_bytes_are_those_of_the_steps(mpi_results, ranks):
    seen, sliced = set(), set()
    for case, topology, lines in by_case(mpi_results(ranks, WORKER, "collectives")):
        assert all(line["intact"] for line in lines), case
        want = foretold(case, topology)
        if want is None:
            continue
        for line in lines:
            assert Told(*line["told"]) == want[line["rank"]], (case, topology, line["rank"])
        laid = planned(case, topology)
        seen.add((case.operation, laid.algorithm))
        sliced |= {(case.operation, laid.algorithm)} if len(laid.slices) > 1 else set()
    if ranks > 1:
        every = set(Algorithm) - {Algorithm.NATIVE, Algorithm.AUTO, Algorithm.ENCODED}
        assert {algorithm for _, algorithm in seen} == every
        assert len({operation for operation, _ in seen}) == len(Operation)
        assert sliced == {pair for pair in seen if pair[1] is not Algorithm.HOMOMORPHIC}


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_a_broadcast_samples_the_error_of_its_root_only(mpi_results, ranks):
    lossy = 0
    for case, topology, lines in by_case(mpi_results(ranks, WORKER, "collectives")):
        if case.operation is not Operation.BROADCAST or topology.ranks == 1:
            continue
        samples = {line["rank"] for line in lines if line["samples_error"]}
        assert samples <= {case.root}, (case, topology)
        lossy += bool(samples)
    assert lossy


@pytest.mark.parametrize("ranks", RANKS)
def test_operations_without_a_codec_are_exact_and_counted(mpi_results, ranks):
    compared = 0
    for case, topology, lines in by_case(mpi_results(ranks, WORKER, "collectives")):
        by_library = planned(case, topology).algorithm is Algorithm.NATIVE
        if topology.ranks > 1 and not by_library:
            continue
        p = topology.ranks
        nbytes = [count_elements(piece) * np.dtype(case.dtype).itemsize for piece in cut_evenly(case.n, p)]
        want = exact(case, p)
        for line in lines:
            at_root = line["rank"] == case.root
            shared_out = case.operation in (Operation.REDUCE_SCATTER, Operation.REDUCE)
            assert len({other["told"][0] for other in lines}) == 1 or shared_out
            if case.operation is Operation.BROADCAST:
                sent = (p - 1) * sum(nbytes) if at_root else 0
            elif case.operation is Operation.REDUCE:
                sent = 0 if at_root else sum(nbytes)
            else:
                sent = BYTES[case.operation](nbytes, line["rank"])
            assert line["told"][1:] == [sent if p > 1 else 0, sent if p > 1 else 0, 0], case
            assert line["plain_calls"] == (p > 1 and case.codec != "none"), case
            if line["values"] is not None and (at_root or case.operation is not Operation.REDUCE):
                mine = want[cut_evenly(case.n, p)[line["rank"]]] if case.operation is Operation.REDUCE_SCATTER else want
                scale = float(np.abs(mine).max(initial=0))
                room = 1e-6 if case.dtype == "float32" else 1e-15
                np.testing.assert_allclose(line["values"], mine[:2000], rtol=0, atol=room * p * scale)
                compared += 1
    assert compared


@pytest.mark.parametrize("ranks", RANKS)
def test_exchanges_deliver_values_that_were_encoded_once(mpi_results, ranks):
    results = mpi_results(ranks, WORKER, "exchanges")
    assert {line["what"] for line in results} >= {"all-to-all", "shift by 0", "shift by -1", "shift by 2"}
    for line in results:
        assert line["right"] and line["wire"] == line["want"], line


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_between_two_ranks(mpi_results, ranks):
    results = mpi_results(ranks, WORKER, "messages")
    assert len(results) == 2 * 8 * 2
    for line in results:
        assert line["right"] and line["wire"] == line["want"], line


@pytest.mark.parametrize("ranks", [2, pytest.param(5, marks=pytest.mark.long)])
def test_nan_and_infinity_on_any_rank_reach_every_rank(mpi_results, ranks):
    results = mpi_results(ranks, WORKER, "non_finite")
    assert {line["what"][1] for line in results} >= {"native", "two-shot", "ring", "doubling", "homomorphic", "auto"}
    assert [line for line in results if line["finite"]] == []


def test_impossible_operations_are_refused_or_done_by_another_algorithm(mpi_results):
    for line in mpi_results(2, WORKER, "refusals"):
        half, other, double = line["said"]
        assert half == "a reduction sums fp32 or fp64, not float16: convert the values first"
        assert other == "an encoded all-reduce supports only sums: use an exact channel for other operations"
        assert double.startswith("zfp:8: supports float32, float16 and bfloat16, but not float64")
        assert line["instead"] == {"two-shot": 1}
        assert line["sums"] == [2.0] * 5
