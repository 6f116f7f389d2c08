"""What an operation's time counts as: waited for, or passed while its caller did something else."""

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
    """Exposed and hidden seconds of an operation, by a clock that only the operation and its caller move."""
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


def test_a_call_that_blocks_is_waited_for(times: Callable[..., tuple[float, float]]) -> None:
    def blocking(clock: list[float]) -> Slice:
        clock[0] += 3.0
        yield from ()

    assert times(blocking) == (3.0, 0.0)


def test_what_moves_while_the_caller_computes_is_hidden(times: Callable[..., tuple[float, float]]) -> None:
    def nonblocking(clock: list[float]) -> Slice:
        yield []
        clock[0] += 3.0

    # begun at 0, computed for 2, waited for 3
    assert times(nonblocking) == (3.0, 2.0)
