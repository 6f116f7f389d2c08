"""A model spread over ranks against the same model in one process: loss, gradients and weights by global name.

The oracle runs in fp64, where rounding is 1e-16 and any mistake in a sum, a scale or a slice is far larger.
"""

from pathlib import Path

import pytest
from cases import LAYOUTS, LOSSY, MODELS, MOST_RANKS, SPREAD, label

WORKER = Path(__file__).with_name("parity_worker.py")

TOLERANCE = 1e-12
"""Of loss, norm and gradients, relative to the reference's own norm: some thousand sums of rounding 1e-16."""

WEIGHT_TOLERANCE = 1e-9
"""Adam divides a gradient by its own size, so a gradient that is zero but for rounding (the bias of the keys) comes out
as rounding / eps: 1e-18 / 1e-8 of a learning rate, in a tensor that began at zero and is three learning rates large."""


def by(results, **wanted):
    found = [r for r in results if all(r[key] == value for key, value in wanted.items())]
    assert len(found) == 1, f"{len(found)} results for {wanted}"
    return found[0]


def assert_same(result):
    for name in ("loss", "norm", "gradients", "evaluation"):
        assert result[name] <= TOLERANCE, f"{name} off by {result[name]:.2e} ({result['worst'].get(name)})"
    assert result["weights"] <= WEIGHT_TOLERANCE, result["worst"]["weights"]
    assert result["replicas"] == 0.0
    assert result["agree"]
    assert result["same_tokens"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", [label(layout) for layout in LAYOUTS])
def test_layout_trains_as_one_process(mpi_results, model, layout):
    results = mpi_results(MOST_RANKS, WORKER, "every_layout")
    assert_same(by(results, model=model, layout=layout))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", [label(layout) for layout in SPREAD])
def test_layout_with_sequence_parallelism_trains_as_one_process(mpi_results, model, layout):
    results = mpi_results(MOST_RANKS, WORKER, "spread_by_positions")
    assert_same(by(results, model=model, layout=layout))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", ["dp2-tp1-pp1", "dp2-tp2-pp2"])
def test_zero_1_gives_the_bits_of_plain_data_parallelism(mpi_results, model, layout):
    result = by(mpi_results(MOST_RANKS, WORKER, "both_zero_stages"), model=model, layout=layout)
    assert result["gradients"] == result["weights"] == result["loss"] == result["evaluation"] == 0.0


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
@pytest.mark.parametrize("model", MODELS)
def test_lossless_codec_gives_the_bits_of_the_identity(mpi_results, model, precision):
    result = by(mpi_results(MOST_RANKS, WORKER, "lossless"), model=model, precision=precision)
    assert result["gradients"] == result["weights"] == result["loss"] == result["evaluation"] == 0.0
    assert result["agree"]


@pytest.mark.parametrize(
    ("model", "scheme"), [("neox", "baseline"), ("gpt2", "zhybrid-16-8"), ("neox", "sign-feedback")]
)
def test_overlap_changes_no_bit(mpi_results, model, scheme):
    result = by(mpi_results(MOST_RANKS, WORKER, "overlapped"), model=model, scheme=scheme)
    during, after = result["early"]
    assert during > 0 and after == 0, "reductions that had begun before the backward pass was over"
    assert result["gradients"] == result["weights"] == result["loss"] == result["evaluation"] == 0.0


def test_residuals_belong_to_parameters_and_end_with_a_skipped_step(mpi_results):
    for rank in mpi_results(MOST_RANKS, WORKER, "residuals"):
        few, many = rank["buckets"]
        assert many > few, "the buckets were to differ"
        assert rank["parameters"] and rank["equal"]
        assert min(rank["sizes"].values()) > 0, "no residual: nothing was shown"
        assert rank["after_skipping"] == 0.0


@pytest.mark.parametrize("scheme", LOSSY)
@pytest.mark.parametrize("model", MODELS)
def test_replicas_agree_under_a_lossy_scheme(mpi_results, model, scheme):
    assert_lossy(by(mpi_results(MOST_RANKS, WORKER, "lossy"), model=model, scheme=scheme))


@pytest.mark.parametrize("scheme", LOSSY[:2])
@pytest.mark.parametrize("model", MODELS)
def test_replicas_agree_under_a_lossy_scheme_with_sequence_parallelism(mpi_results, model, scheme):
    assert_lossy(by(mpi_results(4, WORKER, "lossy_by_positions"), model=model, scheme=scheme))


def assert_lossy(result):
    assert result["gradients"] > 1e-3, "the lossy codec was never in the way"
    assert result["replicas"] == 0.0
    assert result["agree"]


@pytest.mark.parametrize(
    ("fault", "seen_in"),
    [
        ("divided_twice", "gradients"),
        ("reduce_left_out", "loss"),
        ("backward_reduce_left_out", "gradients"),
        ("tied_gradient_left_out", "gradients"),
        ("one_replica_dropped", "gradients"),
        ("boundary_gradient_stale", "gradients"),
        ("own_piece_exact", "replicas"),
        ("whole_and_split_mixed", "replicas"),
    ],
)
def test_planted_fault_is_seen(mpi_results, fault, seen_in):
    results = mpi_results(MOST_RANKS, WORKER, "faults")
    place = next(i for i, result in enumerate(results) if result["fault"] == fault)
    sound = results[place - 1]
    assert sound["fault"] is None
    assert_same(sound)
    assert results[place][seen_in] > 1e-5 > TOLERANCE


@pytest.mark.parametrize(
    ("fault", "seen_in"),
    [
        ("largest_logit_left_out", "loss"),
        ("exponentials_left_out", "loss"),
        ("target_counted_twice", "loss"),
        ("rows_off_by_one_rank", "loss"),
        ("summands_left_out", "gradients"),
        ("gathered_in_wrong_order", "loss"),
    ],
)
def test_planted_fault_of_tensor_parallelism_is_seen(mpi_results, fault, seen_in):
    results = mpi_results(2, WORKER, "tensor_faults")
    faulty = by(results, fault=fault)
    assert_same(by(results, fault=None, sequence_parallel=faulty["sequence_parallel"]))
    assert faulty[seen_in] > 1e-5 > TOLERANCE


def test_a_run_sees_that_its_replicas_differ(mpi_results):
    results = mpi_results(MOST_RANKS, WORKER, "faults")
    assert not by(results, fault="own_piece_exact")["agree"]
