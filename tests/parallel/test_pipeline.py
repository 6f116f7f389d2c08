"""Every schedule and every recomputation against the same model without: the same order of sums, so the same bits.

Only the tied embedding has other bits under a pipeline: its two copies sum over the micro-batches first.
"""

import math
from pathlib import Path

import pytest
from cases import GPT2
from pipeline_cases import BATCH, FAULTY, GRID, LAYERS, SEQ_LEN, STEPS, WIDTH

from hpcbench.parallel.pipeline import tag
from hpcbench.predict.activations import alive_by_formula

WORKER = Path(__file__).with_name("pipeline_worker.py")
RANKS = 4

TOLERANCE = 1e-12
"""Relative to the reference's own norm: some thousand sums of rounding 1e-16."""

EACH = pytest.mark.parametrize("case", GRID, ids=lambda case: case.name)


@pytest.fixture
def found(mpi_results, case):
    return named(mpi_results, None, case)


def named(mpi_results, fault, case):
    (result,) = [
        result for result in mpi_results(RANKS, WORKER) if (result["fault"], result.get("case")) == (fault, case.name)
    ]
    return result


@EACH
def test_gradients_have_the_bits_of_no_pipeline(found, case):
    tied_on_two_stages = case.model == "gpt2" and case.layout.pp > 1
    assert found["other_bits"] == (["embedding.tokens.weight"] if tied_on_two_stages else [])
    assert found["ever"] == tied_on_two_stages, "bits of a later step"
    for name in ("loss", "gradients", "evaluation"):
        assert found[name] <= (TOLERANCE if tied_on_two_stages else 0.0), name
    assert found["weights"] <= (1e-9 if tied_on_two_stages else 0.0), "Adam makes 1e-18 / 1e-8 of a zero gradient"


@EACH
def test_as_many_activations_are_alive_as_the_schedule_says(found, case):
    pp, chunks = case.layout.pp, case.layout.chunks
    shape = {"stages": pp, "microbatches": BATCH // case.layout.dp, "chunks": chunks}
    assert found["alive"] == [alive_by_formula(case.schedule, stage=stage, **shape) for stage in range(pp)]


@EACH
def test_message_bytes_are_those_of_the_formula(found, case):
    """An activation crosses each of ``parts - 1`` boundaries once each way; what is recomputed is reduced once more."""
    layout, values = case.layout, BATCH * SEQ_LEN * WIDTH * 8 * STEPS
    boundaries = layout.parts - 1
    for way in ("FORWARD", "BACKWARD"):
        assert found["bytes"].get(f"PP-{way}", 0) == boundaries * values * layout.tp + _tied(found, way, case)
        again = 2 * LAYERS if way == "FORWARD" and case.recompute not in ("none", "selective") else 0
        more = found["bytes"].get(f"TP-{way}", 0) - found["plain_bytes"].get(f"TP-{way}", 0)
        assert more == again * 2 * (layout.tp - 1) * values
    assert found["bytes"].get("DP-BACKWARD") == found["plain_bytes"].get("DP-BACKWARD")


def _tied(found, way, case):
    """Both copies' gradients are summed over the two ends: each sends as many bytes as the table has."""
    if way == "FORWARD" or case.model != "gpt2" or case.layout.pp == 1:
        return 0
    return 2 * GPT2.vocab * WIDTH * 8 * STEPS


@EACH
def test_the_phases_add_up_to_the_step(found, case):
    assert [stage.pop("stage") for stage in found["phases"]] == list(range(case.layout.pp))
    for stage in found["phases"]:
        step = stage.pop("step_s")
        assert math.isclose(sum(stage.values()), step, abs_tol=1e-7)
        assert min(stage.values()) >= 0
        assert stage["forward_s"] > 0 and stage["backward_s"] > 0 and stage["optimizer_s"] > 0
        assert (stage["bubble_s"] > 0) == (case.layout.pp > 1)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_messages_of_any_size_arrive(mpi_results, schedule):
    """Each part doubles; the loss of micro-batch i is 3 (i + 1) + 10 times that, a weight's gradient half of it."""
    results = [result for result in mpi_results(RANKS, WORKER) if result.get("schedule") == schedule]
    assert len(results) == 3 * RANKS
    gain = 2 ** (8 if schedule == "interleaved" else 4)
    losses = [gain * (3 * (i + 1) + 10) for i in range(8)]
    for k, result in enumerate(results):
        last = k % RANKS == RANKS - 1
        assert result["losses"] == result["evaluated"] == (losses if last else [])
        # the first and the last value of the scale: the loss is of the first one alone
        whole = sum(losses) / len(losses) / 2
        expected = [whole, whole if result["hidden"] == 1 else 0.0]
        assert result["gradients"] == [expected] * (2 if schedule == "interleaved" else 1)


@pytest.mark.parametrize("parts", [2, 6, 280])
def test_tags_differ_and_every_library_has_them(parts):
    everything = [
        tag(i, boundary, forward=forward, parts=parts)
        for i in range(58)
        for boundary in range(parts)
        for forward in (True, False)
    ]
    assert len(set(everything)) == len(everything)
    assert tag(10**6, parts - 1, forward=True, parts=parts) < 1 << 15 > max(everything)


@pytest.mark.parametrize("fault", FAULTY)
def test_planted_fault_is_seen(mpi_results, fault):
    assert FAULTY[fault] in GRID, "without the fault it is sound"
    assert named(mpi_results, fault, FAULTY[fault])["gradients"] > 1e-5 > TOLERANCE
