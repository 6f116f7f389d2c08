"""Tests that every schedule and recomputation mode is bitwise identical to training without either.

In a pipeline, only the tied embedding differs, because its two copies are first summed separately over micro-batches.
"""

import math
from pathlib import Path

import pytest
from pipeline_cases import BATCH, FAULTY, GRID, STEPS, Case
from schedule_oracle import count_alive_by_formula

from hpcbench.contract.layout import Layout
from hpcbench.parallel.pipeline import tag
from hpcbench.predict import volume

WORKER = Path(__file__).with_name("pipeline_worker.py")
RANKS = 4

TOLERANCE = 1e-12
"""Tolerance relative to the norm of the reference, for sums with a few thousand roundings of 1e-16."""

EACH = pytest.mark.parametrize("case", GRID, ids=lambda case: case.name)


@pytest.fixture
def report(mpi_results, case):
    return named(mpi_results, None, case)


def named(mpi_results, fault, case):
    (result,) = [
        result for result in mpi_results(RANKS, WORKER) if (result["fault"], result.get("case")) == (fault, case.name)
    ]
    return result


@EACH
def test_gradients_have_the_bits_of_a_run_without_pipeline(report, case):
    tied_on_two_stages = case.model == "gpt2" and case.layout.pp > 1
    assert report["other_bits"] == (["embedding.tokens.weight"] if tied_on_two_stages else [])
    assert report["ever"] == tied_on_two_stages, "bits of a later step"
    for name in ("loss", "gradients", "evaluation"):
        assert report[name] <= (TOLERANCE if tied_on_two_stages else 0.0), name
    assert report["weights"] <= (1e-9 if tied_on_two_stages else 0.0), "Adam makes 1e-18 / 1e-8 of a zero gradient"


@EACH
def test_the_schedule_keeps_the_expected_number_of_activations(report, case):
    pp, chunks = case.layout.pp, case.layout.chunks
    shape = {"stages": pp, "microbatches": BATCH // case.layout.dp, "chunks": chunks}
    assert report["alive"] == [count_alive_by_formula(case.schedule, stage=stage, **shape) for stage in range(pp)]


@EACH
def test_message_bytes_are_those_of_the_formula(report, case):
    run = case.run
    expected = volume.count_all_ranks_bytes(run.model, run.train, run.layout)
    assert report["bytes"] == {" ".join(key): STEPS * nbytes for key, nbytes in expected.items()}


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_closed_form_by_hand(sequence_parallel):
    """Each tensor rank sends an activation across ``p v - 1`` boundaries, once in each direction.

    The gradients of the tied weight's two copies are summed over both ends of the pipeline. Each end sends the number
    of bytes that it holds.
    """
    layout = Layout(tp=2, pp=2, chunks=2, stages=[1, 3, 2, 2])
    run = Case(layout, "interleaved", model="gpt2", zero=0).run
    train = run.train.changed(sequence_parallel=sequence_parallel)
    by_rank = volume.count_all_ranks_bytes(run.model, train, layout)
    values = BATCH * train.seq_len * run.model.hidden * (1 if sequence_parallel else 2)
    table = run.model.vocab * run.model.hidden
    assert by_rank["PP", "FORWARD", "ACT"] == 3 * values * 8
    assert run.model.vocab == 259 and run.model.hidden == 32, "halves of 130 and 129 rows, no padding"
    assert by_rank["PP", "BACKWARD", "GRAD"] == 3 * values * 8
    assert by_rank["PP", "STEP", "GRAD"] == 2 * table * 8


@EACH
def test_the_phases_add_up_to_the_step(report, case):
    assert [stage.pop("stage") for stage in report["phases"]] == list(range(case.layout.pp))
    for stage in report["phases"]:
        step = stage.pop("step_s")
        assert math.isclose(sum(stage.values()), step, abs_tol=1e-7)
        assert min(stage.values()) >= 0
        assert stage["forward_s"] > 0 and stage["backward_s"] > 0 and stage["optimizer_s"] > 0
        assert (stage["bubble_s"] > 0) == (case.layout.pp > 1)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_messages_of_any_size_arrive(mpi_results, schedule):
    """Each part doubles its input, so all parts together multiply it by `gain`.

    The loss of micro-batch i is gain * (3 (i + 1) + 10). A weight's gradient is half the mean loss.
    """
    results = [result for result in mpi_results(RANKS, WORKER) if result.get("schedule") == schedule]
    assert len(results) == 3 * RANKS
    gain = 2 ** (8 if schedule == "interleaved" else 4)
    losses = [gain * (3 * (i + 1) + 10) for i in range(8)]
    for k, result in enumerate(results):
        last = k % RANKS == RANKS - 1
        assert result["losses"] == result["evaluated"] == (losses if last else [])
        # the gradients of the first and last elements of the scale; only the first element affects the loss
        mean = sum(losses) / len(losses) / 2
        expected = [mean, mean if result["hidden"] == 1 else 0.0]
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
def test_planted_fault_is_detected(mpi_results, fault):
    assert FAULTY[fault] in GRID, "without the fault the run is correct"
    assert named(mpi_results, fault, FAULTY[fault])["gradients"] > 1e-5 > TOLERANCE
