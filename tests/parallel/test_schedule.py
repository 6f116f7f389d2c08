"""The 1F1B schedule by its invariants: no ranks needed."""

import pytest

from hpcbench.parallel.schedule import Action, forward_only, one_f_one_b

GRID = [(stages, microbatches) for stages in range(1, 7) for microbatches in range(1, 10)]


@pytest.mark.parametrize(("stages", "microbatches"), GRID)
def test_every_micro_batch_goes_forward_and_backward_once_on_every_stage(stages, microbatches):
    for stage in range(stages):
        actions = list(one_f_one_b(stage, stages, microbatches))
        assert sorted(actions) == sorted(
            Action(work, i) for work in ("forward", "backward") for i in range(microbatches)
        )


@pytest.mark.parametrize(("stages", "microbatches"), GRID)
def test_no_stage_waits_for_ever_and_few_micro_batches_are_alive(stages, microbatches):
    """Execute the schedules against each other: an action runs when what it needs has been sent."""
    todo = [list(one_f_one_b(stage, stages, microbatches)) for stage in range(stages)]
    done: list[set[Action]] = [set() for _ in range(stages)]
    alive = [0] * stages
    most = [0] * stages
    while any(todo):
        progressed = False
        for stage in range(stages):
            if not todo[stage]:
                continue
            work, i = todo[stage][0]
            if work == "forward":
                ready = stage == 0 or Action("forward", i) in done[stage - 1]
            else:
                ready = Action("forward", i) in done[stage]
                ready &= stage == stages - 1 or Action("backward", i) in done[stage + 1]
            if ready:
                done[stage].add(todo[stage].pop(0))
                alive[stage] += 1 if work == "forward" else -1
                most[stage] = max(most[stage], alive[stage])
                progressed = True
        assert progressed, f"deadlock: {todo}"
    assert most == [min(stages - stage, microbatches) for stage in range(stages)]


def test_evaluation_goes_forward_only():
    assert list(forward_only(0, 2, 3)) == [Action("forward", i) for i in range(3)]
