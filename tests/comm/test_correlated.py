"""Tests of correlated rounding: sums without bias, and with less error than with independent random numbers."""

from pathlib import Path

import pytest

from hpcbench.comm.correlated import SEED_BITS, make_shared_seed
from hpcbench.comm.plan import BUILDERS
from hpcbench.comm.steps import Combine, doubling, sum_at_root
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import ElementRange, cut_aligned
from hpcbench.contract.traffic import Algorithm

WORKER = Path(__file__).with_name("correlated_worker.py")
CODECS = ["int4:32", "int8:64", "int4:32/256:nonuniform"]
LESS = {"two-shot": 0.87, "hierarchical-encoded": 0.97}
"""Bounds of the error relative to stochastic rounding. In the second algorithm, most of the error comes from partial
sums, and each total contains only one rounded partial sum."""


def seeds_of_doubling(ranks):
    """Return the seeds of the exchanges of recursive doubling, by stage and by the ranks whose values are encoded."""
    topology, pieces = Topology.flat(ranks), cut_aligned(ElementRange(0, 4096), ranks, 1)
    by_stage, parts = {}, {rank: {rank} for rank in range(ranks)}
    plans = {rank: doubling(topology, rank, pieces) for rank in range(ranks)}
    for stage in range(ranks.bit_length() + 1):
        arrived = {rank: set() for rank in range(ranks)}
        now = [(rank, step) for rank in plans for step in plans[rank] if step.stage == stage and step.coded]
        for rank, step in now:
            for part in step.sends:
                arrived[part.peer] |= parts[rank]
                if step.combine is Combine.SUM_DECODED:
                    seed = make_shared_seed(5, step, part, rank, topology)
                    by_stage.setdefault(stage, {}).setdefault(frozenset(parts[rank]), []).append(seed)
        for rank in parts:
            parts[rank] = parts[rank] | arrived[rank]
    return by_stage


def seeds(algorithm, topology, n=4096, first=5):
    """Return the rank and the seed of each contribution, by stage and span."""
    pieces = cut_aligned(ElementRange(0, n), topology.ranks, 1)
    by_part = {}
    for rank in range(topology.ranks):
        if algorithm == "root":
            steps = sum_at_root(topology, rank, 1, ElementRange(0, n))
        elif algorithm == "doubling":
            steps = doubling(topology, rank, pieces)
        else:
            steps = BUILDERS[algorithm][0](topology, rank, pieces)
        for step in (step for step in steps if step.coded and step.combine is Combine.SUM):
            for part in step.sends:
                seed = make_shared_seed(first, step, part, rank, topology)
                by_part.setdefault((step.stage, part.span), []).append((rank, seed))
    return by_part


@pytest.mark.parametrize(
    "topology", [Topology.flat(5), Topology.regular(3, 4), Topology((0, 1, 0, 1)), Topology.regular(4, 1)]
)
@pytest.mark.parametrize("algorithm", [Algorithm.TWO_SHOT, Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_ENCODED])
def test_contributors_share_random_numbers_with_evenly_spaced_offsets(algorithm, topology):
    by_part = seeds(algorithm, topology)
    assert by_part or algorithm is Algorithm.HIERARCHICAL  # which has no messages between nodes on one node
    for contributions in by_part.values():
        offsets = sorted(seed >> SEED_BITS for _, seed in contributions)
        assert len({seed % (1 << SEED_BITS) for _, seed in contributions}) == 1
        assert offsets == [(k << 16) // len(offsets) for k in range(len(offsets))]
    random = [contributions[0][1] % (1 << SEED_BITS) for contributions in by_part.values()]
    assert len(set(random)) == len(random), "other sums and stages have other random numbers"


@pytest.mark.parametrize("algorithm", ["root", "doubling", Algorithm.RING])
def test_contributors_that_do_not_exchange_parts_have_different_offsets(algorithm):
    for contributions in seeds(algorithm, Topology.flat(7)).values():
        assert len({seed for _, seed in contributions}) == len(contributions)
        assert len({seed % (1 << SEED_BITS) for _, seed in contributions}) == 1


@pytest.mark.parametrize("ranks", [2, 4, 7, 8, 12])
def test_ranks_with_the_same_partial_sum_have_the_same_seed(ranks):
    """In recursive doubling, ranks send the same sum to different receivers, which must get the same values."""
    by_stage = seeds_of_doubling(ranks)
    assert len(by_stage) == ranks.bit_length() - 1
    for by_sum in by_stage.values():
        assert all(len(set(seeds)) == 1 for seeds in by_sum.values())
        offsets = sorted(seeds[0] >> SEED_BITS for seeds in by_sum.values())
        assert offsets == [(k << 16) // len(by_sum) for k in range(len(by_sum))]


def results(mpi_results, codec, algorithm, how, fault=None):
    lines = [
        line
        for line in mpi_results(4, WORKER)
        if (line["codec"], line["algorithm"], line["how"], line["fault"]) == (codec, algorithm, how, fault)
    ]
    assert len(lines) == 4
    return lines


def assert_less_error(correlated, stochastic, bound):
    for line, other in zip(correlated, stochastic, strict=True):
        assert line["error"] < bound * other["error"]


def assert_no_bias(lines):
    for line in lines:
        assert line["bias"] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("algorithm", LESS)
def test_sums_have_less_error_than_with_independent_random_numbers(mpi_results, codec, algorithm):
    nearest, stochastic, correlated = (
        results(mpi_results, codec, algorithm, how) for how in ("", ":stochastic", ":correlated")
    )
    assert_less_error(correlated, stochastic, LESS[algorithm])
    assert_less_error(nearest, correlated, 1.0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("algorithm", [*LESS, "ring"])
def test_sums_have_no_bias(mpi_results, codec, algorithm):
    """Errors of 60 sums cancel as independent errors do. Errors of rounding to nearest are the same in each sum."""
    assert_no_bias(results(mpi_results, codec, algorithm, ":correlated"))
    for line in results(mpi_results, codec, algorithm, ""):
        assert line["bias"] > 7


@pytest.mark.parametrize("fault", ["own_noise", "same_noise"])
def test_planted_fault_of_shared_noise_is_detected(mpi_results, fault):
    faulty = results(mpi_results, CODECS[0], "two-shot", ":correlated", fault)
    with pytest.raises(AssertionError):
        assert_less_error(faulty, results(mpi_results, CODECS[0], "two-shot", ":stochastic"), LESS["two-shot"])


def test_planted_fault_of_dependent_stages_is_detected(mpi_results):
    faulty = results(mpi_results, CODECS[0], "hierarchical-encoded", ":correlated", "one_stage")
    with pytest.raises(AssertionError):
        assert_no_bias(faulty)
