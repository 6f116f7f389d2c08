"""Tests of plans that are executed with messages through PyTorch's point-to-point calls.

Ranks are threads that use queues instead of gloo.
"""

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.execute import STAGES, Call, carry_out
from hpcbench.comm.memory import Tally
from hpcbench.comm.places import HostPlace
from hpcbench.comm.plan import Operation
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.scratch import Scratch
from hpcbench.comm.topology import Topology
from hpcbench.comm.vector import InPlace
from hpcbench.contract.traffic import Algorithm
from hpcbench.programs.gloo_carrier import GlooCarrier, behind_length, drive, room_for, with_length

PATIENCE_S = 60.0
"""Timeout in seconds after which a rank that still waits raises queue.Empty, so that a faulty test ends."""


@dataclass
class Sent:
    def wait(self) -> None:
        """Return immediately, because the message has already been sent."""


@dataclass
class Coming:
    box: "queue.SimpleQueue[np.ndarray[Any, Any]]"
    into: torch.Tensor

    def wait(self) -> None:
        content = self.box.get(timeout=PATIENCE_S)
        assert content.size <= self.into.numel()  # gloo accepts a shorter message but not a longer one
        self.into[: content.size] = torch.from_numpy(content)


class Wires:
    """Queues between ranks, one per pair and tag."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[int, int, int], queue.SimpleQueue[np.ndarray[Any, Any]]] = defaultdict(
            queue.SimpleQueue
        )
        self._lock = threading.Lock()

    def box(self, of: int, to: int, tag: int) -> "queue.SimpleQueue[np.ndarray[Any, Any]]":
        with self._lock:
            return self._boxes[of, to, tag]


class End:
    """One rank's end of the queues, with the methods of a process group."""

    def __init__(self, wires: Wires, rank: int) -> None:
        self._wires, self._rank = wires, rank

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Sent:
        self._wires.box(self._rank, peer, tag).put(tensors[0].numpy().copy())
        return Sent()

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Coming:
        return Coming(self._wires.box(peer, self._rank, tag), tensors[0])


def on_ranks(ranks: int, work: Callable[[int, GlooCarrier], None]) -> None:
    wires, errors = Wires(), []

    def run(rank: int) -> None:
        try:
            work(rank, GlooCarrier(End(wires, rank), rank, ranks))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


@pytest.mark.parametrize("codec", ["none", "int8:256", "xpk", "threshold:0.5"])
@pytest.mark.parametrize(
    ("topology", "algorithm"),
    [
        (Topology.flat(3), Algorithm.TWO_SHOT),
        (Topology.flat(3), Algorithm.DOUBLING),
        (Topology.regular(2, 2), Algorithm.HIERARCHICAL),
    ],
)
def test_an_all_reduce_over_messages_equals_the_plan(codec: str, topology: Topology, algorithm: Algorithm) -> None:
    n, p = 70_000, topology.ranks
    coder = get_codec(codec)
    dtype = np.dtype(np.float32)
    asked = Request(Operation.ALL_REDUCE, n, dtype, topology, coder, algorithm=algorithm, slices=6)
    laid = plan(asked)
    rng = np.random.default_rng(5)
    vectors = [rng.standard_normal(n).astype(np.float32) for _ in range(p)]
    exact = np.sum(np.array(vectors, dtype=np.float64), axis=0)
    tallies = [Tally() for _ in range(p)]

    def work(rank: int, carrier: GlooCarrier) -> None:
        place = HostPlace(Scratch())
        call = Call(carrier, topology, place, coder, dtype, InPlace(vectors[rank]), 0, None, tallies[rank])
        drive(carry_out(call, laid.steps(rank, k), k * STAGES) for k in range(len(laid.slices)))

    on_ranks(p, work)
    assert all(np.array_equal(vector, vectors[0]) for vector in vectors)
    for rank, tally in enumerate(tallies):
        assert tally.message_bytes == laid.message_bytes(rank)
        if coder.fixed_size:
            assert tally.wire_bytes == laid.wire_bytes(rank)
        else:
            assert 0 < tally.wire_bytes < laid.wire_bytes(rank)
    worst = float(np.max(np.abs(vectors[0] - exact)))
    assert worst < {"none": 1e-5, "xpk": 1e-5, "int8:256": 0.2, "threshold:0.5": 0.5 * (p + 1)}[codec]


@dataclass
class Asked:
    """A request of a slice. When waited for, the request appends its slice and stage to `order`."""

    slice: int
    stage: int
    order: list[tuple[int, int]]

    def wait(self) -> int:
        self.order.append((self.slice, self.stage))
        return 0


def driven(stages: dict[int, list[int]]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the order of waits, as (slice, stage), and the number of waits before each slice began."""
    order: list[tuple[int, int]] = []
    begun: list[int] = []

    def stages_of(number: int) -> Any:
        begun.append(len(order))
        for stage in stages[number]:
            yield [Asked(number, stage, order)]

    drive(stages_of(number) for number in stages)
    return order, begun


def test_slices_begin_between_the_stages_of_an_older_one() -> None:
    order, begun = driven({k: [0, 1] for k in range(6)})
    assert order[:6] == [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (3, 0)], (
        "sums of newer slices before the older gathers"
    )
    assert begun[:4] == [0, 0, 1, 2], "two slices are in flight before the first wait"
    assert sorted(order) == [(k, stage) for k in range(6) for stage in (0, 1)]


def test_all_ranks_wait_in_one_order_even_if_some_have_fewer_stages() -> None:
    full_order, _ = driven({k: [0, 1, 2] for k in range(8)})
    less, _ = driven({k: [0, 2] if k % 2 else [2] for k in range(8)})
    assert less == [event for event in full_order if event in less], "otherwise two ranks could wait for each other"


def test_stages_with_reused_tags_follow_the_others() -> None:
    """In a long ring, the 17th hop reuses the tag of the first hop."""
    order, _ = driven({k: [14, 15, 0, 1] for k in range(40)})
    assert [stage for number, stage in order if number == 0] == [14, 15, 0, 1]
    at = {event: k for k, event in enumerate(order)}
    assert all(at[5, stage] < at[6, stage] for stage in (14, 15, 0, 1))
    assert at[5, 15] < at[4, 0] < at[5, 0], "a newer slice continues before the older one's next stage"


def test_messages_contain_their_length() -> None:
    content = np.arange(5, dtype=np.uint8)
    room = room_for(100)
    message = with_length(content)
    room[: message.size] = message
    assert np.array_equal(behind_length(room), content)


def test_an_impossible_length_is_an_error() -> None:
    message = with_length(np.zeros(9, dtype=np.uint8))
    with pytest.raises(ValueError, match="9 bytes, but can contain at most 3"):
        behind_length(message[:11])
