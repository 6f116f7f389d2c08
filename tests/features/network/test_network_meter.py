"""Tests of the network bytes of the engine's own runs, with fake counters read before and after counted steps."""

from collections.abc import Iterator

import pytest
from mpi4py import MPI

from hpcbench.features.network import observer
from hpcbench.features.network.counters import Reading
from hpcbench.features.network.events import NetworkBytes
from hpcbench.features.network.observer import NetworkMeter


def plant(monkeypatch: pytest.MonkeyPatch, *values: tuple[int | None, int | None]) -> None:
    readings: Iterator[dict[str, Reading]] = iter([{"eth0": Reading("interface", *value)} for value in values])
    monkeypatch.setattr(observer, "read_counters", lambda: next(readings))


def take_steps(n_steps: int, *, first: int, pauses: tuple[int, ...]) -> NetworkBytes:
    meter = NetworkMeter(["n1"], MPI.COMM_SELF, first=first)
    for step in range(1, n_steps + 1):
        meter.begin(step)
        meter.pause(step, more=step in pauses)
    return meter.summary(from_step=first, to_step=n_steps)


def test_warm_up_and_what_lies_between_the_steps_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, (1000, 100), (1500, 250), (9000, 900), (9070, 905))
    counted = take_steps(6, first=3, pauses=(2, 4, 6))
    assert (counted.sent_bytes, counted.received_bytes) == (500 + 70, 150 + 5)
    assert (counted.from_step, counted.to_step, counted.nodes, counted.uncertain_bytes) == (3, 6, 1, 0)
    assert counted.whole_sent_bytes is None, "the run has no other traffic that was counted"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            ((1000, 100), (900, 250), (2000, 300), (2100, 310)),
            "the counter decreased, because of a reset or an overflow",
        ),
        (
            ((1000, 100), (1100, 250), (2000, 300), (2100, 200)),
            "the counter decreased, because of a reset or an overflow",
        ),
        (((1000, 100), (1100, 250), (2000, 300), (None, 310)), "the counter could not be read"),
    ],
)
def test_one_bad_reading_leaves_the_sum_unknown(
    monkeypatch: pytest.MonkeyPatch, values: tuple[tuple[int | None, int | None], ...], problem: str
) -> None:
    plant(monkeypatch, *values)
    counted = take_steps(6, first=3, pauses=(2, 4, 6))
    assert counted.sent_bytes is None and counted.problems == (f"n1: eth0: {problem}",)


def test_a_device_that_appears_later_has_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([{}, {"eth0": Reading("interface", 5, 5)}])
    monkeypatch.setattr(observer, "read_counters", lambda: next(readings))
    counted = take_steps(2, first=1, pauses=(2,))
    assert counted.sent_bytes is None and counted.problems == ("n1: eth0: the counter could not be read",)
