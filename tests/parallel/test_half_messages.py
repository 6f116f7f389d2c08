"""Tests of half-precision messages: half the bytes, few roundings, identical replicas, and no hidden overflows."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("half_messages_worker.py")
RANKS, N = 4, 5000
UNIT = {"fp16": 2.0**-11, "bf16": 2.0**-8}


@pytest.fixture
def cases(mpi_results):
    results = mpi_results(RANKS, WORKER, "everything")

    def of(case, **wanted):
        matching = [r for r in results if r["case"] == case and all(r[key] == value for key, value in wanted.items())]
        assert matching and len(matching) % RANKS == 0
        return matching

    return of


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("codec", ["none", "mpc"])
def test_operations_round_their_messages_and_nothing_else(cases, nodes, dtype, codec):
    results = cases("operations", nodes=nodes, dtype=dtype, codec=codec)
    assert len(results) == RANKS
    for result in results:
        assert 0.1 < result["all_reduce"] <= 1, "above the bound of two roundings, or not rounded"
        assert 0.1 < result["reduce_scatter"] <= 1
        assert result["halved"] and result.get("wire", True)
        for name in ("replicas", "rounded", "all_gather", "broadcast", "shift", "all_to_all"):
            assert result[name], name


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_mpi_library_sums_half_messages_and_every_rank_has_the_same_bits(cases, dtype):
    for result in cases("reductions", dtype=dtype, algorithm="native"):
        assert result["ways"] == {"native": 2} and result["plain_calls"] == 0
        assert 0.01 < result["all_reduce"] <= 1 and 0.01 < result["reduce_scatter"] <= 1
        assert result["replicas"] and result["rounded"]
        message, wire, coded = result["bytes"]
        assert message == wire == 2 * N * 3 * (RANKS - 1) // RANKS and coded == 0


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_ring_of_half_messages_rounds_at_each_hop_and_leaves_replicas_equal(cases, dtype):
    for result in cases("reductions", dtype=dtype, algorithm="ring"):
        assert result["ways"] == {"ring": 2} and result["replicas"] and result["rounded"]
        assert 0.01 < result["all_reduce"] <= 1


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_within_one_node_a_hierarchical_sum_is_rounded_by_its_owner_too_and_runs_no_codec(cases, dtype):
    for result in cases("reductions", dtype=dtype, algorithm="hierarchical", fault=False):
        assert result["replicas"] and result["rounded"]
        message, wire, coded = result["bytes"]
        assert message == wire and coded == 0
        assert result["plain_calls"] == 2, "the codec is counted, but no step ran it"
        assert 0 < result["error"] < UNIT[dtype], "the error of a codec that never ran"
    for result in cases("reductions", dtype=dtype, algorithm="hierarchical", fault=True):
        assert not result["replicas"], "the planted fault is not detected"


def test_sums_of_the_library_that_take_two_collectives_keep_their_order_in_the_background(cases):
    assert all(result["right"] for result in cases("many_sums"))


def test_a_bf16_run_gives_its_codec_16_bits_per_value(cases):
    for result in cases("squeezed"):
        assert result["dtype"] == "bfloat16" and result["coded"] == 1
        assert result["ratio"] == pytest.approx(result["alone"], abs=0.01)
        assert result["forward"] == result["predicted"]


def test_rounding_errors_are_in_the_residuals(cases):
    for result in cases("residuals"):
        assert result["with"] < result["without"] / 10


def test_a_value_beyond_fp16_is_received_as_infinity(cases):
    for result in cases("overflowing"):
        assert result["infinite"] and result["others"]


@pytest.mark.parametrize("model", ["neox", "gpt2"])
def test_a_run_sends_half_the_bytes_in_every_dimension_and_trains_equally(cases, model):
    for result in cases("training", model=model):
        assert result["bytes"] == result["predicted"]
        single, native, bf16, fp16 = result["bytes"]
        assert native == single
        assert bf16 == fp16 == {name: n if name.startswith("EXACT") else n // 2 for name, n in single.items()}
        assert result["algorithms"] == ["two-shot", "native", "native", "native"]
        assert result["agree"] == [True] * 4
        (a, b), *others = result["losses"]
        for first, second in others[1:]:
            assert 0 < abs(first - a) < 2e-3 and 0 < abs(second - b) < 5e-3
        assert others[0] == pytest.approx([a, b], rel=1e-6)


def test_the_loss_scale_stays_on_gradients_that_travel_in_fp16(cases):
    for result in cases("small_gradients"):
        fp32, fp16, without = result["gradients"]
        assert fp32 == fp16 == 2.0**-28
        assert without == 0.0, "the planted fault is not detected"


def test_copies_of_a_tied_weight_have_one_gradient_and_their_drift_is_detected(cases):
    for result in cases("tied_copies"):
        assert result["gradients"] == [2.0**-27]
        assert result["agree"] == [True, False]


@pytest.mark.parametrize("zero", [0, 1])
def test_bf16_weights_are_the_rounded_masters_on_all_ranks(cases, zero):
    for comm in ("fp32", "bf16"):
        for result in cases("masters", zero=zero, comm=comm):
            assert result["rounded"] and result["finer"]
    assert all(result["same"] for result in cases("masters", zero=zero, comm="both"))


@pytest.mark.parametrize("dimension", ["DP", "PP"])
def test_all_ranks_skip_a_step_whose_overflow_a_codec_makes_finite(cases, dimension):
    for result in cases("hidden", dimension=dimension, fault=False):
        assert result["skipped"] and result["same"] and result["count"] == 1
    for result in cases("hidden", dimension=dimension, fault=True):
        assert not result["skipped"] and not result["same"], "the planted fault is not detected"
