"""Tests of schedule invariants, without ranks."""

import pytest
from schedule_oracle import StalledScheduleError, count_alive_by_formula, simulate

from hpcbench.contract.layout import Layout
from hpcbench.parallel.schedule import SCHEDULES, Action, forward_only, interleaved, one_f_one_b
from hpcbench.predict import activations
from hpcbench.report.resources import compute_bubble

GRID = [
    (name, stages, microbatches, 1)
    for name in ("gpipe", "1f1b")
    for stages in range(1, 7)
    for microbatches in range(1, 10)
] + [
    ("interleaved", stages, rounds * stages, chunks)
    for stages in range(1, 6)
    for rounds in range(1, 4)
    for chunks in range(2, 5)
]
EACH = pytest.mark.parametrize(("name", "stages", "microbatches", "chunks"), GRID)


def timeline(schedule, stages, microbatches, chunks, *, forward=1.0, backward=2.0, message=0.0):
    parts = stages * chunks
    return simulate(
        schedule,
        microbatches=microbatches,
        forward_s=[forward / chunks] * parts,
        backward_s=[backward / chunks] * parts,
        stages=stages,
        message_s=message,
    )


@EACH
def test_every_micro_batch_goes_once_through_every_chunk_of_every_stage(name, stages, microbatches, chunks):
    for stage in range(stages):
        actions = list(SCHEDULES[name](stage, stages, microbatches, chunks))
        everything = [(i, c) for i in range(microbatches) for c in range(chunks)]
        assert sorted(actions) == sorted(Action(work, *pair) for work in ("forward", "backward") for pair in everything)
        place = {action: k for k, action in enumerate(actions)}
        assert all(place[Action("forward", *pair)] < place[Action("backward", *pair)] for pair in everything)
        for chunk in range(chunks):
            order = [action.microbatch for action in actions if action[0::2] == ("backward", chunk)]
            assert order == sorted(order), "gradients would be summed in another order"


@EACH
def test_no_stage_waits_forever_however_slow_messages_are(name, stages, microbatches, chunks):
    for message in (0.0, 0.5, 100.0):
        timeline(SCHEDULES[name], stages, microbatches, chunks, message=message)


@EACH
def test_the_number_of_live_micro_batches_is_that_of_the_formula(name, stages, microbatches, chunks):
    for stage in range(stages):
        actions = SCHEDULES[name](stage, stages, microbatches, chunks)
        expected = count_alive_by_formula(name, stage=stage, stages=stages, microbatches=microbatches, chunks=chunks)
        assert activations.count_alive(actions) == expected


@EACH
def test_the_bubble_is_that_of_the_formula(name, stages, microbatches, chunks):
    times = timeline(SCHEDULES[name], stages, microbatches, chunks)
    assert times.bubble == pytest.approx(
        compute_bubble(stages=stages, microbatches=microbatches, chunks=chunks), abs=1e-12
    )
    # each stage computes 3 s per micro-batch, and waits 3 s for each of the p - 1 other stages
    assert times.seconds == pytest.approx(3 * microbatches + 3 * (stages - 1) / chunks)


def test_timeline_by_hand():
    """Check the 1F1B timeline of two stages and two micro-batches. Forward takes 1 s, backward 2 s, a message 0.5 s."""
    times = timeline(one_f_one_b, 2, 2, 1, message=0.5)
    assert [[timed[1:] for timed in stage] for stage in times.stages] == [
        [(0, 1), (1, 2), (5.0, 7.0), (8.0, 10.0)],
        [(1.5, 2.5), (2.5, 4.5), (4.5, 5.5), (5.5, 7.5)],
    ]
    assert times.bubble == pytest.approx(1 - 12 / 20)


def test_the_slowest_part_sets_the_pace():
    simulated = simulate(one_f_one_b, microbatches=50, forward_s=[1, 3, 1], backward_s=[2, 6, 2], stages=3)
    assert simulated.seconds == pytest.approx(1 + 50 * 9 + 2), "the middle stage works without a pause"


def test_chunks_in_the_wrong_order_are_a_deadlock():
    def swapped(stage, stages, microbatches, chunks):
        for action in interleaved(stage, stages, microbatches, chunks):
            yield action._replace(chunk=chunks - 1 - action.chunk)

    def uneven(stage, stages, microbatches, chunks):
        """Return a schedule whose last stage runs its actions in reverse order."""
        actions = list(one_f_one_b(stage, stages, microbatches, chunks))
        yield from reversed(actions) if stage else actions

    with pytest.raises(StalledScheduleError, match="stage 0 waits forever"):
        timeline(swapped, 2, 4, 2)
    with pytest.raises(StalledScheduleError):
        timeline(uneven, 2, 4, 1)


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), [(1, 3, 1), (2, 3, 2), (3, 7, 2), (4, 2, 3), (3, 0, 2)])
def test_evaluation_goes_forward_only_with_any_number_of_micro_batches(stages, microbatches, chunks):
    for stage in range(stages):
        actions = list(forward_only(stage, stages, microbatches, chunks))
        assert sorted(actions) == sorted(
            Action("forward", i, chunk) for i in range(microbatches) for chunk in range(chunks)
        )
        last = [action.microbatch for action in actions if action.chunk == chunks - 1]
        assert last == sorted(last)
    timeline(forward_only, stages, microbatches, chunks)


@pytest.mark.parametrize(
    ("name", "microbatches", "chunks", "says"),
    [
        ("interleaved", 6, 2, "multiple of 4 micro-batches"),
        ("interleaved", 8, 1, "at least two chunks per stage"),
        ("1f1b", 8, 2, "one chunk per stage, not 2: use interleaved"),
        ("gpipe", 8, 2, "one chunk per stage, not 2: use interleaved"),
    ],
)
def test_impossible_schedules_are_refused(name, microbatches, chunks, says):
    with pytest.raises(ValueError, match=says):
        list(SCHEDULES[name](0, 4, microbatches, chunks))


def test_layers_alive_weigh_by_their_chunk():
    """A stage has chunks of 3 and 1 layers.

    With 2 stages and 2 micro-batches, the stage first runs the forward passes 0 0 1 1.
    """
    actions = list(interleaved(0, 2, 2, 2))
    assert activations.count_alive(actions) == 4
    assert activations.count_alive(actions, [3, 1]) == 8
    assert activations.count_alive(interleaved(1, 2, 2, 2), [3, 1]) == 7


def test_parts_of_the_model():
    assert Layout(pp=4).layers_of(10) == [range(3), range(3, 6), range(6, 8), range(8, 10)]
    assert Layout(pp=2, chunks=2, stages=[1, 3, 3, 1]).layers_of(8) == [range(1), range(1, 4), range(4, 7), range(7, 8)]
    for stages in ([4, 4], [1, 3, 3, 2]):
        with pytest.raises(ValueError, match=r"layout\.stages: .* must list 4 parts with 8 layers in all"):
            Layout(pp=2, chunks=2, stages=stages).layers_of(8)
    for stages in ([0, 3, 3, 2], [3, 3, 3, -1]):
        with pytest.raises(ValueError, match=r"stages\.\d\s+Input should be greater than or equal to 1"):
            Layout(pp=2, chunks=2, stages=stages)


@pytest.mark.parametrize(
    ("hidden", "heads", "per_token"), [(6144, 64, 34 + 5 * 64 * 2048 / 6144), (12288, 96, 34 + 80.0)]
)
def test_activation_bytes_of_a_layer(hidden, heads, per_token):
    """Compare with arXiv 2205.05198, table 2: 5as/h is 80 for the 175 B model."""
    shape = {"seq_len": 2048, "micro_batch": 1, "hidden": hidden, "heads": heads}
    tokens = 2048 * hidden
    assert activations.count_layer_bytes(**shape) == pytest.approx(tokens * per_token)
    assert activations.count_layer_bytes(**shape, recompute="selective") == pytest.approx(tokens * 34)
    assert activations.count_layer_bytes(**shape, recompute="full") == 2 * tokens
    assert activations.count_layer_bytes(**shape, recompute=4) == tokens / 2
    assert activations.count_layer_bytes(**shape, tp=8, recompute="selective") == pytest.approx(tokens * 13)
    spread = {**shape, "tp": 8, "sequence_parallel": True}
    assert activations.count_layer_bytes(**spread) == pytest.approx(tokens * per_token / 8)
    assert activations.count_layer_bytes(**spread, recompute="selective") == pytest.approx(tokens * 34 / 8)
    assert activations.count_layer_bytes(**spread, recompute="full") == 2 * tokens / 8


@pytest.mark.parametrize(("heads", "hidden", "saved"), [(96, 12288, 0.70), (128, 20480, 0.65)])
def test_selective_recomputation_saves_the_published_share(heads, hidden, saved):
    """Compare with arXiv 2205.05198, section 5: 70 % (GPT-3) and 65 % (MT-NLG) of the activations, in every layout."""
    for split in ({}, {"tp": 8, "sequence_parallel": True}):
        shape = {"seq_len": 2048, "micro_batch": 1, "hidden": hidden, "heads": heads, **split}
        share = activations.count_layer_bytes(**shape, recompute="selective") / activations.count_layer_bytes(**shape)
        assert 1 - share == pytest.approx(saved, abs=0.005)
