"""Tests of operation times: exposed while the caller waits, and hidden while the caller does other work."""

from collections.abc import Callable

import numpy as np
import pytest

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.calls import Calls
from hpcbench.comm.channel import Channel
from hpcbench.comm.memory import Slice, Tally
from hpcbench.comm.places import Places
from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[float]], Slice]], tuple[float, float]]:
    """Return a function that measures exposed and hidden seconds on a fake clock."""
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def measure(slice_of: Callable[[list[float]], Slice]) -> tuple[float, float]:
        channel = Channel(Dimension.DP, Phase.STEP, MessageKind.GRAD, get_codec("none"), Algorithm.NATIVE)
        place, _ = Places().of(np.zeros(1, np.float32))
        calls = Calls(Progress(Wait.SPIN))
        work = calls.at_once(slice_of(clock), channel, place, Tally(), how="native")
        clock[0] += 2.0  # the caller computes
        work.wait()
        return channel.counters.exposed_s, channel.counters.hidden_s

    return measure


def test_a_blocking_call_is_exposed(times: Callable[..., tuple[float, float]]) -> None:
    def blocking(clock: list[float]) -> Slice:
        clock[0] += 3.0
        yield from ()

    assert times(blocking) == (3.0, 0.0)


def test_transfer_during_computation_is_hidden(times: Callable[..., tuple[float, float]]) -> None:
    def nonblocking(clock: list[float]) -> Slice:
        yield []
        clock[0] += 3.0

    # the caller computed for 2 s and waited for 3 s
    assert times(nonblocking) == (3.0, 2.0)
