"""Tests of cancellation: the signals to each job, their order, and the waiting times."""

from collections.abc import Mapping, Sequence

from hpcbench.batch.schedulers.cancelling import Force, cancel
from hpcbench.batch.schedulers.job_status import JobStatus
from hpcbench.contract.state import State


class Queue:
    """Jobs, each with the number of the signal that ends it, which is 9 if only SIGKILL does."""

    def __init__(self, strength: dict[str, int], state: State = State.RUNNING) -> None:
        self.strength = strength
        self.state = state
        self.told: list[tuple[int, list[str]]] = []
        self.slept: list[float] = []

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        return {job: JobStatus(self.state, "busy") for job in ids if job in self.strength}

    def force(self, number: int, refuses: str = "") -> Force:
        def end(ids: Sequence[str]) -> dict[str, str]:
            self.told.append((number, list(ids)))
            for job in ids:
                if self.strength.get(job) == number:
                    del self.strength[job]
            return {job: "not yours" for job in ids if job == refuses}

        return Force(end, 20.0)


def test_force_grows_only_for_those_left() -> None:
    queue = Queue({"a": 0, "b": 1, "c": 9})
    outcomes = cancel(["a", "b", "c", "z", "a"], queue.poll, [queue.force(0), queue.force(1)], queue.slept.append)
    assert outcomes == {"a": "ended", "b": "ended", "c": "signaled, but not over: busy", "z": "already over"}
    assert queue.told == [(0, ["a", "b", "c"]), (1, ["b", "c"])]
    assert 20 <= sum(queue.slept) / 2 < 32


def test_a_refused_job_is_not_forced() -> None:
    queue = Queue({"a": 9, "b": 0})
    assert cancel(["a", "b"], queue.poll, [queue.force(0, "a"), queue.force(1)], queue.slept.append) == {
        "a": "not yours",
        "b": "ended",
    }
    assert [number for number, _ in queue.told] == [0]


def test_a_job_on_a_dead_host_is_not_over() -> None:
    for state in (State.UNKNOWN, State.LOST, State.SUSPENDED, State.PENDING):
        queue = Queue({"a": 1}, state)
        assert cancel(["a"], queue.poll, [queue.force(0), queue.force(1)], queue.slept.append) == {"a": "ended"}
        assert queue.told == [(0, ["a"]), (1, ["a"])]
