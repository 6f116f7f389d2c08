"""Tests of parameter server predictions, compared with closed forms and with a simulation of the clock rules."""

import heapq

import pytest

from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Model
from hpcbench.predict.machine import make_gpu_machine
from hpcbench.predict.memory import predict_memory
from hpcbench.predict.parameter_server import average_turns, predict_step_time, time_served_step
from hpcbench.predict.step import StepModel
from hpcbench.predict.volume import count_all_ranks_bytes
from hpcbench.predict.workload import Workload, make_train

MODEL = Model(layers=8, hidden=1024, heads=16, vocab=50304)
N = 4


def workload(sync, **settings):
    given = {"global_batch": 2 * N, "micro_batch": 1, "seq_len": 512, "clip": 0.0, "zero": 1, "precision": "fp32"}
    return Workload(MODEL, make_train(**given, sync=sync, **settings), Layout(dp=N), 1)


@pytest.fixture(scope="module")
def machine():
    return make_gpu_machine("A100", node_gbit=100)


def by_clocks(turns, bound, steps):
    """Simulate update times in seconds.

    A worker begins a turn if the slowest worker is at most `bound` turns behind.
    """
    ends = [[0.0] for _ in turns]
    for clock in range(steps):
        needed = clock - bound
        free = max(current[needed] for current in ends) if needed > 0 else 0.0
        for current, took in zip(ends, turns, strict=True):
            current.append(max(current[-1], free) + took)
    return max(current[-1] for current in ends)


def by_tickets(turns, steps):
    """Simulate update times in seconds. Each turn goes to the next free worker."""
    free = [(0.0, rank) for rank in range(len(turns))]
    end = 0.0
    for _ in range(steps * len(turns)):
        now, rank = heapq.heappop(free)
        heapq.heappush(free, (now + turns[rank], rank))
        end = max(end, now + turns[rank])
    return end


def test_a_turn_has_nothing_hidden_and_the_bytes_of_stage_1(machine):
    plain, result = (
        predict_step_time(workload("all-reduce", overlap=False), machine),
        predict_step_time(workload("bsp"), machine),
    )
    assert result.seconds.value == pytest.approx(plain.seconds.value) and result.parts == pytest.approx(plain.parts)
    assert result.seconds.value > StepModel(workload("all-reduce"), machine).run().seconds.value, (
        "an all-reduce hides some"
    )
    assert sum(result.parts.values()) == pytest.approx(result.seconds.value)
    assert result.parts["data"] > 0 and not any(channel[0] == "EXACT" for channel in result.channels)
    item = workload("bsp")
    total = count_all_ranks_bytes(item.model, item.train, item.layout)
    for channel, sent in result.channels.items():
        assert sent.message_bytes * N == total[channel]


def test_the_slowest_worker_sets_the_pace_unless_others_take_its_work(machine):
    slow = {"slow_rank": 2, "slow_factor": 3.0}
    even = predict_step_time(workload("bsp"), machine)
    bsp, ssp, asp = (
        predict_step_time(workload(sync, staleness=3 if sync == "ssp" else 0, **slow), machine)
        for sync in ("bsp", "ssp", "asp")
    )
    passes = even.parts["forward"] + even.parts["backward"] + even.parts["recompute"]
    busy = even.seconds.value - even.parts["waiting"]
    turns = [busy, busy, busy + 2 * passes, busy]
    share = even.parts["waiting"] / busy
    assert bsp.seconds.value == ssp.seconds.value == pytest.approx(turns[2] * (1 + share))
    assert asp.seconds.value == pytest.approx(N / sum(1 / took for took in turns)) and asp.parts["waiting"] == 0
    for result in (bsp, asp):
        assert sum(result.parts.values()) == pytest.approx(result.seconds.value)
        assert result.seconds.low < result.seconds.value < result.seconds.high
    assert bsp.parts["forward"] == pytest.approx(3 * even.parts["forward"])
    steps = 400
    assert by_clocks(turns, 0, steps) / steps == pytest.approx(turns[2])
    assert by_clocks(turns, 3, steps) / steps == pytest.approx(turns[2])
    assert by_tickets(turns, steps) / steps == pytest.approx(asp.seconds.value, rel=0.01)


def test_workers_that_are_alike_take_a_turn_each(machine):
    turn = predict_step_time(workload("bsp"), machine)
    busy = turn.seconds.value - turn.parts["waiting"]
    assert time_served_step(turn, [1.0] * N, shared=True).seconds.value == pytest.approx(busy)
    assert average_turns([2.0, 2.0]) == 2.0 and average_turns([1.0, 3.0]) == 1.5


def test_shards_hold_what_waits_for_an_update():
    plain, result = predict_memory(workload("all-reduce"), None), predict_memory(workload("bsp"), None)
    for peak in ("after backward", "after reduction"):
        more = result.peaks[peak]["transient"] - plain.peaks[peak]["transient"]
        assert more == pytest.approx(2 * plain.peaks[peak]["weights"])
    assert result.peaks["before backward"] == plain.peaks["before backward"]


def test_collectives_wait_for_the_slow_one_which_hides_more(machine):
    slow = {"slow_rank": 1, "slow_factor": 2.0}
    even, result = (predict_step_time(workload("all-reduce", **item), machine) for item in ({}, slow))
    apart, bare = (predict_step_time(workload("all-reduce", overlap=False, **item), machine) for item in (slow, {}))
    passes = even.parts["forward"] + even.parts["backward"] + even.parts["recompute"]
    share = 1 + even.parts["waiting"] / (even.seconds.value - even.parts["waiting"])
    assert apart.seconds.value == pytest.approx(bare.seconds.value + passes * share, rel=0.02), "nothing is hidden"
    assert even.seconds.value < result.seconds.value < even.seconds.value + passes * share
    assert result.parts["optimizer"] == pytest.approx(even.parts["optimizer"])
    assert predict_step_time(workload("all-reduce"), machine) == StepModel(workload("all-reduce"), machine).run()
