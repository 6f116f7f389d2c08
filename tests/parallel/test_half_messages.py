"""Half-precision messages: half the bytes, few roundings, equal replicas; and overflows that no codec hides."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("half_messages_worker.py")
RANKS = 4


@pytest.fixture
def cases(mpi_results):
    results = mpi_results(RANKS, WORKER, "everything")

    def of(case, **wanted):
        found = [r for r in results if r["case"] == case and all(r[key] == value for key, value in wanted.items())]
        assert found and len(found) % RANKS == 0
        return found

    return of


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("codec", ["none", "mpc"])
def test_operations_round_their_messages_and_nothing_else(cases, nodes, dtype, codec):
    results = cases("operations", nodes=nodes, dtype=dtype, codec=codec)
    assert len(results) == RANKS
    for result in results:
        assert 0.1 < result["all_reduce"] <= 1, "over the bound of two roundings, or not rounded at all"
        assert 0.1 < result["reduce_scatter"] <= 1
        assert result["halved"] and result.get("wire", True)
        for name in ("replicas", "rounded", "all_gather", "broadcast", "shift", "all_to_all"):
            assert result[name], name


def test_what_rounding_takes_is_in_the_residuals(cases):
    for result in cases("residuals"):
        assert result["with"] < result["without"] / 10


def test_a_value_beyond_fp16_arrives_as_infinity(cases):
    for result in cases("overflowing"):
        assert result["infinite"] and result["others"]


@pytest.mark.parametrize("model", ["neox", "gpt2"])
def test_a_run_sends_half_the_bytes_in_every_dimension_and_trains_alike(cases, model):
    for result in cases("training", model=model):
        assert result["bytes"] == result["predicted"]
        single, native, bf16, fp16 = result["bytes"]
        assert native == single
        assert bf16 == fp16 == {name: n if name.startswith("EXACT") else n // 2 for name, n in single.items()}
        assert result["algorithms"] == ["two-shot", "native", "encoded", "encoded"], "no library sums half precision"
        assert result["agree"] == [True] * 4
        (a, b), *others = result["losses"]
        for first, second in others[1:]:
            assert 0 < abs(first - a) < 2e-3 and 0 < abs(second - b) < 5e-3
        assert others[0] == pytest.approx([a, b], rel=1e-6)


def test_the_loss_scale_stays_on_gradients_that_travel_in_fp16(cases):
    for result in cases("small_gradients"):
        auto, fp16, without = result["gradients"]
        assert auto == fp16 == 2.0**-28
        assert without == 0.0, "the planted fault is not seen"


def test_copies_of_a_tied_weight_have_one_gradient_and_are_seen_to_drift_apart(cases):
    for result in cases("tied_copies"):
        assert result["gradients"] == [2.0**-27]
        assert result["agree"] == [True, False]


@pytest.mark.parametrize("zero", [0, 1])
def test_bf16_weights_are_the_rounded_masters_on_all_ranks(cases, zero):
    for comm in ("auto", "bf16"):
        for result in cases("masters", zero=zero, comm=comm):
            assert result["rounded"] and result["finer"]
    assert all(result["same"] for result in cases("masters", zero=zero, comm="both"))


@pytest.mark.parametrize("dimension", ["DP", "PP"])
def test_all_ranks_skip_a_step_whose_overflow_a_codec_makes_finite(cases, dimension):
    for result in cases("hidden", dimension=dimension, fault=False):
        assert result["skipped"] and result["same"] and result["count"] == 1
    for result in cases("hidden", dimension=dimension, fault=True):
        assert not result["skipped"] and not result["same"], "the planted fault is not seen"
