"""Tests that only outlier nodes and allocations are named."""

import random
from dataclasses import replace

import pytest

from hpcbench.collect.submission import RunResult
from hpcbench.contract.state import ResolvedState, State
from hpcbench.report.measures import Measures, measure
from hpcbench.report.method import SlowHost, compute_robust_deviations, list_odd_baselines, list_slow_hosts
from hpcbench.report.resources import HostTime

NEARBY = (1.0, 1.005, 0.995, 1.01, 1.0)


def run(
    pairing: str = "r1",
    *,
    rate: float | None = None,
    hosts: dict[str, float | None] | None = None,
    state: State = "completed",
) -> Measures:
    result = RunResult(pairing, "study", "site", "baseline", 1, pairing, {}, ResolvedState(state), None)
    times = tuple(HostTime(name, 4, 0.2, ratio) for name, ratio in (hosts or {}).items())
    return replace(measure(result), samples_per_s=rate, hosts=times)


def nodes(slow: float | None = None, others: tuple[float, ...] = NEARBY) -> dict[str, float | None]:
    values_by_name: dict[str, float | None] = {f"n{k}": ratio for k, ratio in enumerate(others)}
    return values_by_name if slow is None else {**values_by_name, "n7": slow}


def test_robust_deviations_by_hand() -> None:
    # Median 2, absolute deviations 1 0 0 1 98: their median is 1, and 1.4826 of it the scale.
    assert compute_robust_deviations([1.0, 2.0, 2.0, 3.0, 100.0]) == pytest.approx(
        [-0.6745, 0, 0, 0.6745, 66.1], rel=1e-3
    )
    assert compute_robust_deviations([1.0, 2.0, 90.0]) == [0.0, 0.0, 0.0]
    assert compute_robust_deviations([5.0, 5.0, 5.0, 4.0]) == [0.0, 0.0, 0.0, float("-inf")]
    assert compute_robust_deviations([]) == []


def test_a_node_that_is_always_slow_is_named() -> None:
    runs = [run(f"r{k}", hosts=nodes(1.12)) for k in range(3)]
    assert list_slow_hosts(runs) == [SlowHost("n7", pytest.approx(0.12, rel=0.05), 3, 3)]


def test_a_node_that_was_slow_once_of_many_times_is_not() -> None:
    once = [run(hosts=nodes(1.2)), run(hosts=nodes(1.0)), run(hosts=nodes(1.0))]
    assert list_slow_hosts(once) == []
    (twice,) = list_slow_hosts([*once, run(hosts=nodes(1.2))])
    assert (twice.name, twice.slow, twice.runs) == ("n7", 2, 4)
    # The node was in one run only, so only this run can be evaluated.
    assert [host.name for host in list_slow_hosts([run(hosts=nodes(1.2)), run(hosts=nodes())])] == ["n7"]


def test_little_is_no_matter_and_fast_is_no_fault() -> None:
    assert list_slow_hosts([run(hosts=nodes(1.02, (1.0,) * 5))] * 2) == []
    assert list_slow_hosts([run(hosts=nodes(0.5))] * 2) == []


def test_three_nodes_do_not_tell() -> None:
    few = run(hosts={"a": 1.0, "b": 1.0001, "c": 4.5})
    assert list_slow_hosts([few, few]) == []
    # Nor are they counted among the runs of a node.
    (result,) = list_slow_hosts([few, run(hosts={**nodes(), "c": 4.5})])
    assert (result.name, result.slow, result.runs) == ("c", 1, 1)


def test_healthy_machines_name_few_nodes() -> None:
    """The speeds of 64 nodes scatter by 2 % in each of 6 runs, drawn 50 times. Almost no node is an outlier twice."""
    rng = random.Random(7)
    named = sum(
        len(list_slow_hosts([run(hosts={f"n{k}": rng.gauss(1, 0.02) for k in range(64)}) for _ in range(6)]))
        for _ in range(50)
    )
    assert named <= 1


def test_hostile_times_are_left_out() -> None:
    hosts: dict[str, float | None] = {
        **nodes(1.5),
        "none": None,
        "zero": 0.0,
        "nan": float("nan"),
        "inf": float("inf"),
        "minus": -1.0,
    }
    assert [host.name for host in list_slow_hosts([run(hosts=hosts)] * 2)] == ["n7"]


def test_a_baseline_of_another_kind_is_named() -> None:
    rates = {"r1": 100.0, "r2": 101.0, "r3": 71.0, "r4": 99.0}
    assert list_odd_baselines([run(name, rate=rate) for name, rate in rates.items()]) == [
        ("r3", pytest.approx(71 / 99.5))
    ]
    failed = [run(name, rate=rate, state="failed" if name == "r3" else "completed") for name, rate in rates.items()]
    assert list_odd_baselines(failed) == []
    assert list_odd_baselines([run(f"r{k}", rate=100.0 + k / 10) for k in range(9)]) == []
    assert list_odd_baselines([run("r1"), run("r2", rate=0.0)]) == []
