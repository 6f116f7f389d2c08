"""The discrete simulation against closed forms and against the timing of schedules without a network."""

import pytest

from hpcbench.parallel.schedule import SCHEDULES
from hpcbench.predict.deeds import Busy, Flow, Post, Wait
from hpcbench.predict.schedule import simulate
from hpcbench.predict.simulate import DeadlockError, Simulation


@pytest.mark.parametrize(
    ("name", "stages", "chunks", "micro_batches"), [("1f1b", 4, 1, 7), ("gpipe", 3, 1, 5), ("interleaved", 4, 2, 8)]
)
def test_a_schedule_takes_as_long_as_its_dependences_say(
    name: str, stages: int, chunks: int, micro_batches: int
) -> None:
    """An independent simulation of the same actions, which knows neither networks nor events."""
    parts, message = stages * chunks, 0.25
    programs = []
    for stage in range(stages):
        program: list[Busy | Flow | Post | Wait] = []
        for work, i, chunk in SCHEDULES[name](stage, stages, micro_batches, chunks):
            number = chunk * stages + stage
            forward = work == "forward"
            if number != (0 if forward else parts - 1):
                program.append(Wait((work, i, number), "pipeline"))
            program.append(Busy(1.0 if forward else 2.0))
            if number != (parts - 1 if forward else 0):
                program.append(Post((work, i, number + (1 if forward else -1)), message, 0.0))
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
    """4 s and 2 s of work: half the speed for 4 s, in which the shorter ends, then 2 s alone."""
    programs = [[Flow(0.0, 4.0, "a")], [Flow(0.0, 2.0, "b")]]
    shared, apart = Simulation(programs, [0, 0]), Simulation(programs, [0, 1])
    assert shared.run() == pytest.approx(6.0)
    assert [stage.time for stage in shared.stages] == pytest.approx([6.0, 4.0])
    assert apart.run() == pytest.approx(4.0)


def test_a_flow_that_comes_later_slows_only_what_is_left() -> None:
    simulation = Simulation([[Flow(0.0, 3.0, "a")], [Busy(1.0), Flow(0.0, 1.0, "b")]], [0, 0])
    assert simulation.run() == pytest.approx(4.0)
    assert [stage.time for stage in simulation.stages] == pytest.approx([4.0, 3.0])


def test_what_is_posted_hides_behind_work_and_a_queue_goes_in_order() -> None:
    hidden = [Post("x", 0.5, 1.0), Busy(5.0), Wait("x", "data")]
    assert Simulation([hidden], [0]).run() == pytest.approx(5.0)
    queued = [Post("x", 0.0, 2.0, 0.0, "dp"), Post("y", 1.0, 2.0, 0.5, "dp"), Wait("x", "data"), Wait("y", "data")]
    simulation = Simulation([queued], [0])
    assert simulation.run() == pytest.approx(5.5)
    assert simulation.stages[0].waited["data"] == pytest.approx(5.5)


def test_who_waits_for_nothing_is_told() -> None:
    with pytest.raises(DeadlockError, match="stage 0 waits for ever"):
        Simulation([[Wait("never", "data")]], [0]).run()


def test_more_stages_than_cores_share_them() -> None:
    """Three stages on two cores: two thirds of the speed each until one is done, then full speed."""
    simulation = Simulation([[Busy(2.0)], [Busy(2.0)], [Busy(3.0)]], [0, 1, 2], cores=2)
    assert simulation.run() == pytest.approx(4.0)
    assert [stage.time for stage in simulation.stages] == pytest.approx([3.0, 3.0, 4.0])
    assert [stage.shared for stage in simulation.stages] == pytest.approx([1.0, 1.0, 1.0])
    assert Simulation([[Busy(2.0)], [Busy(2.0)]], [0, 1], cores=2).run() == pytest.approx(2.0)


def test_a_stage_that_waits_leaves_its_core_to_others() -> None:
    waiting = [Busy(1.0), Flow(0.0, 10.0, "data")]
    assert Simulation([waiting, [Busy(4.0)]], [0, 1], cores=1).run() == pytest.approx(12.0)
    assert Simulation([waiting, [Busy(4.0)]], [0, 1], cores=None).run() == pytest.approx(11.0)
