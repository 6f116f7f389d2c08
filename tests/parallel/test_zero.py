"""Tests that ZeRO stages are bitwise identical to plain data parallelism, and match predicted memory and messages."""

from fractions import Fraction
from pathlib import Path

import pytest
from mpi4py import MPI
from published_zero import count_published_bytes
from runs import run_of

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.parallel.buckets import Bucket
from hpcbench.predict import zero
from hpcbench.train import text
from hpcbench.train.trainer import Trainer

WORKER = Path(__file__).with_name("zero_worker.py")
RANKS = 8
TOLERANCE = 1e-12
WEIGHT_TOLERANCE = 1e-9
"""Tolerance for weights.

Tolerance for Adam, which divides gradients that consist of rounding errors by their own size (see `test_parity`).
"""


@pytest.fixture(scope="module")
def results(mpi_results):
    def of(test, *part, **wanted):
        matching = [
            result
            for result in mpi_results(RANKS, WORKER, *part)
            if result["test"] == test and all(result[key] == value for key, value in wanted.items())
        ]
        assert matching, f"no result of {test} for {wanted}"
        return matching

    return of


def assert_same_bits(result):
    assert result["gradients"] == result["weights"] == result["loss"] == result["evaluation"] == 0.0, result
    assert result["replicas"] == 0.0 and result["agree"]


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(
    ("layout", "part"),
    [
        ("dp4-tp1-pp1", ()),
        ("dp2-tp2-pp2", ()),
        *(
            pytest.param(layout, ("remaining",), marks=pytest.mark.long)
            for layout in ("dp2-tp1-pp1", "dp8-tp1-pp1", "dp2-tp2-pp1", "dp2-tp1-pp2")
        ),
    ],
)
def test_every_stage_gives_the_bits_of_stage_0(results, layout, part, stage):
    (result,) = results("stages", *part, layout=layout, zero=stage)
    assert_same_bits(result)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("model", ["neox", "gpt2"])
def test_accumulation_and_clipping_train_like_one_process(results, model, stage):
    (result,) = results("accumulated", model=model, zero=stage)
    for name in ("loss", "norm", "gradients", "evaluation"):
        assert result[name] <= TOLERANCE, f"{name} off by {result[name]:.2e} ({result['worst'].get(name)})"
    assert result["weights"] <= WEIGHT_TOLERANCE
    assert result["replicas"] == 0.0 and result["agree"]


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("change", [{"offload": True}, {"overlap": False}, {"bucket_mb": 1e-6}])
def test_placement_and_timing_change_no_bit(results, stage, change):
    """Sending parameters in one fused message instead of separate messages changes no bit."""
    (result,) = results("variants", zero=stage, change=change)
    assert_same_bits(result)


@pytest.mark.parametrize("change", [{"node_copy": True}, {"node_copy": True, "offload": True, "overlap": False}])
def test_other_gathers_change_no_bit(results, change):
    (result,) = results("variants", zero=3, change=change)
    assert_same_bits(result)


def test_messages_and_states_are_as_predicted(results):
    for result in results("counted"):
        sent, expected = result["messages"]
        assert sent == expected, result
        held, expected = result["held"]
        assert held == expected, result
        crossed, expected = result["link"]
        assert crossed is None or crossed == expected, result
        assert 0 <= result["padding"] < 16 * 4 * result["buckets"]


def test_the_log_has_the_bytes_over_all_hosts_links(results):
    for stage, more in ((3, {"node_copy": True, "offload": True}), (2, {"offload": True}), (1, {"offload": True})):
        ranks = [result for result in results("counted", zero=stage) if more.items() <= result["more"].items()]
        assert len(ranks) == 4
        expected = [sum(both) for both in zip(*(result["crossed"][1] for result in ranks), strict=True)]
        assert all(expected) and all(result["crossed"][0] == expected for result in ranks)
    assert all(result["crossed"][0] == [] for result in results("counted", zero=0))


def test_the_owners_tile_the_parameters(results):
    for stage in (2, 3):
        ranks = results("counted", layout="dp2-tp2-pp2", zero=stage)
        for first, second in ((0, 2), (1, 3), (4, 6), (5, 7)):
            assert ranks[first]["owned"] + ranks[second]["owned"] == ranks[first]["parameters"]


def test_fusion_sends_fewer_messages(results):
    fused = results("counted", layout="dp4-tp1-pp1", zero=2, more={"offload": True, "precision": "bf16"})
    single = results("counted", layout="dp4-tp1-pp1", zero=2, more={"bucket_mb": 1e-6})
    for few, many in zip(fused, single, strict=True):
        assert few["calls"] == 2 * few["buckets"] < many["calls"] == 2 * many["buckets"]


def test_the_backward_pass_gathers_within_the_node(results):
    with_copy = results("counted", layout="dp4-tp1-pp1", zero=3, parts=1)
    assert len(with_copy) == 4
    for result in with_copy:
        forward, backward = result["between_nodes"]
        assert forward > 0 and backward == 0
    sent, _ = with_copy[0]["messages"]
    assert sent["ZERO BACKWARD PARAM"] > 0, "the backward pass gathered nothing"


@pytest.mark.parametrize(("stage", "more"), [(2, {}), (3, {}), (3, {"node_copy": True, "offload": True})])
def test_a_resumed_run_has_the_same_bits(results, stage, more):
    (result,) = results("resumed", zero=stage, more=more)
    assert result["same"]
    assert result["gathers"] == 0, "a rank's checkpoint contains what the rank holds"


def test_all_ranks_compute_with_the_same_decoded_weights(results):
    (sound,) = results("lossy", fault=False)
    assert sound["gradients"] > 1e-3, "the lossy codec was never used"
    assert sound["alike"] and sound["uses"] > 0
    (faulty,) = results("lossy", fault=True)
    assert not faulty["alike"]


@pytest.mark.parametrize(
    ("fault", "seen_in"),
    [
        ("piece_not_gathered", "gradients"),
        ("stale_piece", "gradients"),
        ("divided_twice", "gradients"),
        ("counted_twice_in_norm", "norm"),
        ("reduced_too_early", "gradients"),
        ("overwritten", "gradients"),
        ("freed_too_early", "gradients"),
        ("copy_not_refreshed", "gradients"),
        ("crossing_not_waited_for", "weights"),
    ],
)
def test_planted_fault_is_detected(results, fault, seen_in):
    (result,) = results("faults", fault=fault)
    assert result[seen_in] > 1e-5 > TOLERANCE


@pytest.mark.parametrize(("stage", "most"), [(2, "values"), (3, "nothing")])
def test_a_rank_frees_memory_that_it_does_not_own_before_it_makes_the_next_bucket(monkeypatch, stage, most):
    buckets, values, gradients = [], [], []
    make = Bucket.__init__

    def noted(self, *given):
        values.append(sum(bucket.values.untyped_storage().nbytes() for bucket in buckets))
        gradients.append(sum(bucket.gradients.nbytes for bucket in buckets))
        make(self, *given)
        buckets.append(self)

    monkeypatch.setattr(Bucket, "__init__", noted)
    run = run_of("neox", Layout(), zero=stage)
    run = run.changed(train=run.train.changed(bucket_mb=1e-6))
    Trainer(run, MPI.COMM_SELF, Progress(Wait.GIVE_WAY), text.load(run.data, run.train.seq_len))
    assert len(buckets) > 20 and not any(gradients)
    assert any(values) is (most == "values")


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_states_compared_with_the_published_formulas(ranks):
    """In mixed precision, gradient sums take 4 bytes per value (2 in the paper), and no 2-byte pieces exist."""
    n = 16 * 8 * 3
    more = {0: Fraction(4), 1: Fraction(4, ranks), 2: Fraction(2, ranks), 3: Fraction(0)}
    for stage, difference in more.items():
        held = sum(zero.count_state_bytes(stage, [n], ranks, parameter=2, master=4).values())
        assert held == n * (count_published_bytes(stage, ranks) + difference)
    assert [count_published_bytes(stage, 64) for stage in range(4)] == [
        16,
        4 + Fraction(12, 64),
        2 + Fraction(14, 64),
        Fraction(16, 64),
    ]
