"""Tests of the discrete-event simulation against closed forms and, without a network, against schedule times."""

import pytest
from schedule_oracle import simulate

from hpcbench.parallel.schedule import SCHEDULES
from hpcbench.predict.operations import BackgroundTransfer, BlockingTransfer, Compute, WaitForTransfer
from hpcbench.predict.simulator import DeadlockError, Simulation


@pytest.mark.parametrize(
    ("name", "stages", "chunks", "micro_batches"), [("1f1b", 4, 1, 7), ("gpipe", 3, 1, 5), ("interleaved", 4, 2, 8)]
)
def test_a_schedule_takes_as_long_as_its_dependences_say(
    name: str, stages: int, chunks: int, micro_batches: int
) -> None:
    """An independent simulation of the same actions, without networks and events."""
    parts, message = stages * chunks, 0.25
    programs = []
    for stage in range(stages):
        program: list[Compute | BlockingTransfer | BackgroundTransfer | WaitForTransfer] = []
        for work, i, chunk in SCHEDULES[name](stage, stages, micro_batches, chunks):
            number = chunk * stages + stage
            forward = work == "forward"
            if number != (0 if forward else parts - 1):
                program.append(WaitForTransfer((work, i, number), "pipeline"))
            program.append(Compute(1.0 if forward else 2.0))
            if number != (parts - 1 if forward else 0):
                program.append(BackgroundTransfer((work, i, number + (1 if forward else -1)), message, 0.0))
        programs.append(program)
    oracle = simulate(
        SCHEDULES[name],
        microbatches=micro_batches,
        forward_s=[1.0] * parts,
        backward_s=[2.0] * parts,
        stages=stages,
        message_s=message,
    )
    assert Simulation(programs, list(range(stages))).run() == pytest.approx(oracle.seconds)


def test_two_flows_share_a_network_and_one_has_it_alone() -> None:
    """Work of 4 s and 2 s runs at half speed for 4 s, until the shorter work ends. The remaining work takes 2 s."""
    programs = [[BlockingTransfer(0.0, 4.0, "a")], [BlockingTransfer(0.0, 2.0, "b")]]
    shared, apart = Simulation(programs, [0, 0]), Simulation(programs, [0, 1])
    assert shared.run() == pytest.approx(6.0)
    assert [stage.time for stage in shared.stages] == pytest.approx([6.0, 4.0])
    assert apart.run() == pytest.approx(4.0)


def test_a_flow_that_comes_later_slows_only_what_is_left() -> None:
    simulation = Simulation(
        [[BlockingTransfer(0.0, 3.0, "a")], [Compute(1.0), BlockingTransfer(0.0, 1.0, "b")]], [0, 0]
    )
    assert simulation.run() == pytest.approx(4.0)
    assert [stage.time for stage in simulation.stages] == pytest.approx([4.0, 3.0])


def test_what_is_posted_hides_behind_work_and_a_queue_goes_in_order() -> None:
    hidden = [BackgroundTransfer("x", 0.5, 1.0), Compute(5.0), WaitForTransfer("x", "data")]
    assert Simulation([hidden], [0]).run() == pytest.approx(5.0)
    queued = [
        BackgroundTransfer("x", 0.0, 2.0, 0.0, "dp"),
        BackgroundTransfer("y", 1.0, 2.0, 0.5, "dp"),
        WaitForTransfer("x", "data"),
        WaitForTransfer("y", "data"),
    ]
    simulation = Simulation([queued], [0])
    assert simulation.run() == pytest.approx(5.5)
    assert simulation.stages[0].waited["data"] == pytest.approx(5.5)


def test_who_waits_for_nothing_is_told() -> None:
    with pytest.raises(DeadlockError, match="stage 0 waits forever"):
        Simulation([[WaitForTransfer("never", "data")]], [0]).run()


def test_more_stages_than_cores_share_them() -> None:
    """Three stages on two cores run at two thirds of full speed until one of them ends, then at full speed."""
    simulation = Simulation([[Compute(2.0)], [Compute(2.0)], [Compute(3.0)]], [0, 1, 2], cores=2)
    assert simulation.run() == pytest.approx(4.0)
    assert [stage.time for stage in simulation.stages] == pytest.approx([3.0, 3.0, 4.0])
    assert [stage.shared for stage in simulation.stages] == pytest.approx([1.0, 1.0, 1.0])
    assert Simulation([[Compute(2.0)], [Compute(2.0)]], [0, 1], cores=2).run() == pytest.approx(2.0)


def test_a_stage_that_waits_leaves_its_core_to_others() -> None:
    waiting = [Compute(1.0), BlockingTransfer(0.0, 10.0, "data")]
    assert Simulation([waiting, [Compute(4.0)]], [0, 1], cores=1).run() == pytest.approx(12.0)
    assert Simulation([waiting, [Compute(4.0)]], [0, 1], cores=None).run() == pytest.approx(11.0)
