"""Tests of link measurements, which `auto` uses to compare a codec with gloo's own calls."""

from typing import Any, cast

import numpy as np
import pytest

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.links import Links
from hpcbench.comm.plan import Operation
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm
from hpcbench.programs.gloo_carrier import GlooCarrier
from hpcbench.programs.link_speed import GUESS, add_gloo_times, measure_links


class Line:
    """A carrier whose messages take time on a simulated clock."""

    def __init__(self, rank: int, size: int, bytes_per_s: float) -> None:
        self.rank, self.size, self.now = rank, size, 0.0
        self._bytes_per_s, self._calls = bytes_per_s, 0

    def receive(self, inbox: Any, peer: int, tag: int, *, varies: bool) -> Any:
        assert peer == (self.rank - 1) % self.size and not varies
        self._calls += 1
        late = 0.5 if self._calls % 3 == 1 else 0.0  # the previous rank was not ready yet
        return _Later(self, 200e-6 + inbox.size / self._bytes_per_s + late)

    def send(self, content: Any, peer: int, tag: int, *, varies: bool) -> Any:
        assert peer == (self.rank + 1) % self.size
        return _Later(self, 0.0)


class _Later:
    def __init__(self, line: Line, seconds: float) -> None:
        self._line, self._seconds = line, seconds

    def wait(self) -> None:
        self._line.now += self._seconds


def links(speeds: list[float], nodes: str) -> Links:
    """Return the result, which must be the same on all ranks."""
    lines = [Line(rank, len(speeds), speed) for rank, speed in enumerate(speeds)]
    topology = Topology.by_label(list(nodes))
    messages: dict[int, str] = {}

    def run(line: Line, answer: list[str] | None) -> Links | None:
        def exchange(text: str) -> list[str]:
            messages[line.rank] = text
            return answer if answer is not None else [text] * line.size

        line.now = 0.0
        return measure_links(cast(GlooCarrier, line), topology, exchange, lambda: line.now)

    for line in lines:
        run(line, None)
    every = [messages[rank] for rank in range(len(lines))]
    results = {run(line, every) for line in lines}
    assert len(results) == 1
    (result,) = results
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("speeds", "nodes", "expected"),
    [
        ([12.5e6] * 4, "abcd", 12.5e6),
        ([12.5e6, 12.5e6, 5e6, 12.5e6], "abcd", 5e6),  # the slowest link determines the result
        ([100e6, 1e6, 100e6, 1e6], "aabb", 100e6),  # ranks 1 and 3 receive from their own node
        ([50e9] * 2, "ab", GUESS.between.bytes_per_s),
    ],
)
def test_the_slowest_link_between_nodes_is_found_on_all_ranks(speeds: list[float], nodes: str, expected: float) -> None:
    measured = links(speeds, nodes)
    assert measured.between.bytes_per_s == pytest.approx(expected, rel=1e-3)
    assert (measured.within, measured.between.latency_s) == (GUESS.within, GUESS.between.latency_s)


OPERATIONS = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER)


def left_to_gloo(operation: Operation, nbytes: int, nodes: str, measured: Links) -> bool:
    topology, codec = Topology.by_label(list(nodes)), get_codec("int8:256")
    asked = Request(operation, nbytes // 4, np.dtype(np.float32), topology, codec, Algorithm.AUTO)
    return plan(asked, add_gloo_times(measured, 4)).algorithm is Algorithm.NATIVE


@pytest.mark.parametrize("operation", OPERATIONS)
def test_on_a_slow_link_automatic_choice_encodes_calls_that_the_default_leaves_to_gloo(operation: Operation) -> None:
    slow = links([12.5e6] * 4, "abcd")
    for nbytes in (1 << 18, 1 << 20, 1 << 24):
        assert not left_to_gloo(operation, nbytes, "abcd", slow)
    assert left_to_gloo(Operation.REDUCE_SCATTER, 1 << 22, "abcd", GUESS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_small_calls_over_fast_links_are_left_to_gloo(operation: Operation) -> None:
    assert all(left_to_gloo(operation, nbytes, "abcd", GUESS) for nbytes in (1 << 16, 1 << 18, 1 << 20))


@pytest.mark.parametrize(("nbytes", "most"), [(1 << 20, 1), (16 << 20, 4)])
def test_without_a_measurement_large_vectors_are_summed_at_their_owners_in_few_slices(nbytes: int, most: int) -> None:
    """Each slice costs the overhead of a message in Python.

    On a slow link, forwarding whole vectors takes twice as long.
    """
    asked = Request(
        *(Operation.ALL_REDUCE, nbytes // 4, np.dtype(np.float32), Topology.regular(4, 1), get_codec("int8:256"))
    )
    laid = plan(asked, GUESS)
    assert laid.algorithm is Algorithm.TWO_SHOT and len(laid.slices) <= most
