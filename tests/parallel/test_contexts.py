"""Tests of context parallelism: attention, models compared with one process, and message bytes."""

from itertools import product
from pathlib import Path

import context_faults
import pytest
import torch
from attention_cases import FAULTS, A, B, D, M, dense, random
from cases import MOST_RANKS
from context_cases import (
    AXES,
    CP,
    FAULTY,
    SOUND,
    SUITES,
    bit_equal_contexts,
    contexts,
    faulty_contexts,
    grid_contexts,
    lossless_contexts,
    lossy_contexts,
    make_comparison,
    possible,
    stepped_contexts,
)
from test_parity import assert_bits, assert_bytes, assert_detected, assert_lossy, assert_same
from tiers import list_names

from hpcbench.parallel.context import blocks
from hpcbench.parallel.context.attention import WAYS
from hpcbench.parallel.context.places import in_order, pair, zigzag

WORKER = Path(__file__).with_name("context_worker.py")
ATTENTION = Path(__file__).with_name("attention_worker.py")
COVER = [pytest.param(comparison.name, marks=pytest.mark.long) for comparison in contexts()]
"""Cases of `make test-long`. In `make test`, test_pairs.py compares every method with one process."""
TOLERANCE = 1e-13
"""Tolerance relative to the norm of dense attention's output or gradient.

The tolerance covers a few dozen roundings of 1e-16.
"""
EACH = list(product(WAYS, (2, 4), (False, True), (True, False)))


def find_result(mpi_results, suite, name):
    (result_,) = (result for result in mpi_results(MOST_RANKS, WORKER, suite) if result["name"] == name)
    return result_


def of_cover(mpi_results, name):
    return find_result(mpi_results, "contexts" if name in list_names(contexts) else "others", name)


def seen(mpi_results, scene, **case):
    lines = [line for line in mpi_results(4, ATTENTION) if line["scene"] == scene]
    return [line for line in lines if case.items() <= line.items()]


@pytest.mark.parametrize(("way", "ranks", "overlap", "causal"), EACH)
def test_attention_over_ranks_equals_dense_attention(mpi_results, way, ranks, overlap, causal):
    (line,) = seen(mpi_results, "attention", way=way, ranks=ranks, overlap=overlap, causal=causal)
    assert set(line["errors"]) == {"result", "q", "k", "v"}
    assert max(line["errors"].values()) < TOLERANCE, line


@pytest.mark.parametrize(("way", "ranks", "overlap", "causal"), EACH)
def test_bytes_of_attention_equal_the_closed_forms(mpi_results, way, ranks, overlap, causal):
    (line,) = seen(mpi_results, "bytes", way=way, ranks=ranks, overlap=overlap, causal=causal)
    n, p = 8 * B * A * M * D, ranks
    closed = {
        "ring": [2 * n * 2 * (p - 1), 2 * n * (p - 1)],
        "rsa": [2 * n * 2 * (p - 1), 2 * n * (p - 1)],
        "ulysses": [4 * n * (p - 1) // p, 4 * n * (p - 1) // p],
    }
    assert line["sent"] == [closed[way]] * 4


@pytest.mark.parametrize("way", WAYS)
def test_attention_under_a_lossless_codec_and_in_half_precision(mpi_results, way):
    (exact,) = seen(mpi_results, "lossless", way=way)
    assert max(exact["errors"].values()) < TOLERANCE
    (half,) = seen(mpi_results, "half", way=way)
    assert 1e-4 < max(half["errors"].values()) < 2e-2, "some roundings to 8 bits"


def test_both_forms_of_the_ring_give_the_same(mpi_results):
    for ranks, causal in product((2, 4), (True, False)):
        errors = [
            seen(mpi_results, "attention", way=way, ranks=ranks, overlap=True, causal=causal)[0]["errors"]
            for way in ("ring", "rsa")
        ]
        assert all(errors[0][name] + errors[1][name] < 2 * TOLERANCE for name in errors[0])


@pytest.mark.parametrize(("way", "fault"), [(way, fault) for way, faults in FAULTS.items() for fault in faults])
def test_planted_fault_of_attention_is_detected(mpi_results, way, fault):
    (line,) = seen(mpi_results, "fault", way=way, fault=fault)
    assert max(line["errors"].values()) > 1e-3


def test_a_forwarded_block_is_encoded_once(mpi_results):
    lossy, anew, plain = seen(mpi_results, "passed on")
    assert lossy["alike"] and not lossy["exact"]
    assert not anew["alike"], "if each hop encodes the block again, ranks decode different values"
    assert plain["alike"] and plain["exact"]
    calls, message, wire, coded = lossy["sizes"]
    assert (calls, message, coded) == (3, 3 * 4000, 3 * 4000) and wire < message / 3
    assert plain["sizes"] == [3, 12000, 12000, 0]


def test_summands_of_all_ranks_reach_the_owner(mpi_results):
    (line,) = seen(mpi_results, "homeward")
    assert line["found"] == [[10.0**rank * (1 + 2 + 3 + 4)] * 3 for rank in range(4)]


@pytest.mark.parametrize("name", COVER + list_names(grid_contexts))
def test_trains_like_one_process(mpi_results, name):
    assert_same(of_cover(mpi_results, name))


@pytest.mark.parametrize("name", COVER + list_names(grid_contexts))
def test_message_bytes_of_each_rank_equal_the_closed_forms(mpi_results, name):
    result = of_cover(mpi_results, name)
    assert_bytes(result)
    assert all("CP FORWARD ACT" in rank and "CP BACKWARD GRAD" in rank for rank in result["sent"])


@pytest.mark.parametrize("name", list_names(stepped_contexts))
def test_trains_like_one_process_for_two_steps(mpi_results, name):
    result = find_result(mpi_results, "others", name)
    assert result["steps"] == 2
    assert_same(result)
    assert_bytes(result)


@pytest.mark.parametrize("name", list_names(bit_equal_contexts))
def test_changes_no_bit(mpi_results, name):
    assert_bits(find_result(mpi_results, "others", name))


@pytest.mark.parametrize("name", list_names(lossless_contexts))
def test_lossless_codec_gives_the_bits_of_the_identity(mpi_results, name):
    assert_bits(find_result(mpi_results, "others", name))


@pytest.mark.parametrize("name", list_names(lossy_contexts))
def test_copies_stay_equal_under_a_lossy_codec(mpi_results, name):
    result = find_result(mpi_results, "others", name)
    assert_lossy(result)
    assert result["loss"] < 0.01 and result["norm"] < 0.1, "with 8 bits per message the training is nearly the same"


@pytest.mark.parametrize("name", FAULTY)
def test_planted_fault_is_detected(mpi_results, name):
    place, seen_in = FAULTY[name]
    sound = find_result(mpi_results, "others", make_comparison({**SOUND, **place}).name)
    faulty = find_result(mpi_results, "others", make_comparison({**SOUND, **place}, fault=name).name)
    assert_detected(sound, faulty, seen_in)


def test_every_way_meets_every_value_of_every_other_setting():
    settings = [chosen.settings for chosen in contexts()]
    for name in settings[0]:
        met = {(chosen[CP], chosen[name]) for chosen in settings}
        fixed = {(case[CP], case[name]) for case in possible()} if name in AXES else None
        assert met == fixed if fixed else len(met) == len({value for _, value in met}) * len(AXES[CP]), name


def test_every_fault_is_in_a_suite():
    assert FAULTY.keys() == context_faults.FAULTS.keys()
    assert sum(1 for _ in faulty_contexts()) == 4 + len(FAULTY)
    assert len(SUITES) == 2


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("order", [in_order, zigzag])
def test_the_ranks_have_every_position_once(order, ranks):
    positions = [order(6, rank, ranks) for rank in range(ranks)]
    assert sorted(torch.cat(positions).tolist()) == list(range(6 * ranks))
    assert all(places.tolist() == sorted(places.tolist()) for places in positions)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_pairs_are_those_of_the_mask_and_no_rank_idles(ranks):
    m = 6
    places = [zigzag(m, rank, ranks) for rank in range(ranks)]
    for rank, source in product(range(ranks), repeat=2):
        queries, keys, causal = pair(m, rank, source, causal=True)
        computed = torch.zeros(m, m, dtype=torch.bool)
        computed[queries, keys] = True
        if causal:
            computed &= torch.ones(m, m, dtype=torch.bool).tril()
        assert torch.equal(computed, places[rank][:, None] >= places[source][None, :])
        assert rank == source or int(computed.sum()) == m * m // 2, "half of the block of every owner"
        assert pair(m, rank, source, causal=False) == (slice(0, m), slice(0, m), False)


@pytest.mark.parametrize("causal", [True, False])
def test_fused_kernels_and_plain_products_give_the_same(causal):
    q, k, v, upstream = (random(B, A, M, D, seed=seed) for seed in range(4))
    fused, plain = blocks.attend(q, k, v, causal=causal), blocks._attend(q, k, v, causal=causal)
    for ours, other in zip(fused, plain, strict=True):
        assert torch.allclose(ours, other, rtol=1e-13, atol=1e-14)
    assert torch.allclose(fused.values, dense(q, k, v, causal=causal), rtol=1e-13, atol=1e-14)
    gradients = (
        way(upstream, q, k, v, plain, causal=causal) for way in (blocks.attend_backward, blocks._attend_backward)
    )
    for ours, other in zip(*gradients, strict=True):
        assert torch.allclose(ours, other, rtol=1e-12, atol=1e-14)


def test_blocks_are_joined_as_one():
    q, k, v = random(B, A, 4, D, seed=0), random(B, A, 9, D, seed=1), random(B, A, 9, D, seed=2)
    online = blocks.Online(blocks.attend(q, k[:, :, :2], v[:, :, :2], causal=False))
    for keys in (slice(2, 3), slice(3, 9)):
        online.add(slice(0, 4), blocks.attend(q, 50 * k[:, :, keys], v[:, :, keys], causal=False))
    far = torch.cat((k[:, :, :2], 50 * k[:, :, 2:]), dim=2)
    assert torch.allclose(online.result.values, dense(q, far, v, causal=False), rtol=1e-12, atol=1e-14)
