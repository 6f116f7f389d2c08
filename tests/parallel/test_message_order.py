"""Tests of the order in which pipeline stages start their messages over NCCL, on a strict model of streams."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "comm"))
from streams import StreamError
from strict_nccl import CALLER, with_strict_codecs
from test_streamed_calls import ORDERS, Ranks, channel

from hpcbench.codecs.registry import get_codec
from hpcbench.comm import steps
from hpcbench.comm.places import DevicePlace
from hpcbench.comm.steps import PeerSpan
from hpcbench.comm.topology import Topology
from hpcbench.comm.vector import Exchanged
from hpcbench.contract.shards import ElementRange
from hpcbench.parallel.message_order import OrderedMessages, StageMessage, find_messages, order_messages
from hpcbench.parallel.schedule import Action, forward_only, gpipe, interleaved, one_f_one_b

N = 700
SCHEDULES: dict[str, tuple[Callable[..., Iterator[Action]], int]] = {
    "1f1b": (one_f_one_b, 1),
    "gpipe": (gpipe, 1),
    "interleaved": (interleaved, 2),
    "evaluation": (forward_only, 2),
}
SHAPES = [(stages, batches) for stages in (2, 3, 4) for batches in (stages, 2 * stages)]
EACH = pytest.mark.parametrize("name", SCHEDULES)


def actions_of(name: str, stages: int, batches: int) -> tuple[list[list[Action]], int]:
    schedule, chunks = SCHEDULES[name]
    return [list(schedule(stage, stages, batches, chunks)) for stage in range(stages)], stages * chunks


@EACH
@pytest.mark.parametrize(("stages", "batches"), SHAPES)
def test_a_stage_can_start_its_messages_in_the_order_of_all(name: str, stages: int, batches: int) -> None:
    """A stage never sends a message before the pass that creates it, nor waits for a receive that was not started."""
    actions, parts = actions_of(name, stages, batches)
    messages = order_messages(actions, parts)
    backward = any(action.work == "backward" for action in actions[0])
    assert len(set(messages)) == len(messages) == batches * (parts - 1) * (1 + backward)
    for stage, of_stage in enumerate(actions):
        ordered = OrderedMessages(messages, stage, stages, lambda message: message)
        for action in of_stage:
            needed, created = find_messages(action, stage, stages, parts)
            if needed is not None:
                assert ordered.take(needed) == needed
            if created is not None:
                ordered.send(created, lambda: None)
        assert not ordered._todo and not ordered._received


def test_stages_that_wait_for_each_other_are_refused() -> None:
    actions = [[Action("backward", 0), Action("forward", 0)], [Action("forward", 0), Action("backward", 0)]]
    with pytest.raises(ValueError, match="wait for each other"):
        order_messages(actions, 2)


class Stages:
    """All stages of a pipeline on the stream model. Each pass adds one to its input."""

    def __init__(self, name: str, stages: int, batches: int, codec: str = "none") -> None:
        self.actions, self.parts = actions_of(name, stages, batches)
        self.order = order_messages(self.actions, self.parts)
        self.stages, self.codec = stages, get_codec(codec)
        self.ranks, self.channel = Ranks(Topology.flat(stages)), channel(codec)
        self.results: list[list[np.ndarray]] = []
        self.works: list[Any] = []

    def move(self, stage: int, message: StageMessage, x: Any) -> Any:
        """Start the message of a stage to or from its neighbor."""
        sends = message.sender(self.stages) == stage
        peer = message.receiver(self.stages) if sends else message.sender(self.stages)
        span = PeerSpan(peer, ElementRange(0, N))
        todo = steps.message(**({"to": span} if sends else {"of": span}), coded=lambda part: True)
        call = self.ranks.call(stage, self.codec, Exchanged(x, x), x, self.channel)
        calls = self.ranks.calls[stage]
        return calls.planned(call, [todo], self.channel, how="direct", plain=False, may_change=True)

    def receive(self, stage: int, message: StageMessage) -> tuple[Any, Any]:
        inbox = self.ranks.accelerators[stage].memory(4 * N).view("f4")
        return self.move(stage, message, inbox), inbox

    def play(self, stage: int) -> None:
        """Run the actions of a stage."""
        accelerator = self.ranks.accelerators[stage]
        ordered = self.ordered(stage)
        ones = accelerator.fill(np.ones(N, "f4"))
        for action in self.actions[stage]:
            needed, created = find_messages(action, stage, self.stages, self.parts)
            if needed is None:
                values = accelerator.fill(np.full(N, 10 * action.microbatch, "f4"))
            else:
                work, values = ordered.take(needed)
                work.wait()
            accelerator.add(values, ones, CALLER)
            if created is None:
                self.results.append(accelerator.read(values))
            else:
                ordered.send(created, lambda x=values, m=created: self.works.append(self.move(stage, m, x)))
                accelerator.add(values, ones, CALLER)  # the caller may change what it has sent

    def ordered(self, stage: int) -> OrderedMessages[tuple[Any, Any]]:
        return OrderedMessages(self.order, stage, self.stages, lambda message: self.receive(stage, message))

    def run(self, order: int) -> None:
        with with_strict_codecs():
            for stage in range(self.stages):
                self.play(stage)
            for work in self.works:
                work.wait()
            self.ranks.finish(order)


class LateStages(Stages):
    """Stages that start a receive only when they need the values."""

    def ordered(self, stage: int) -> Any:
        stages = self

        class Late:
            def take(self, message: StageMessage) -> Any:
                return stages.receive(stage, message)

            def send(self, message: StageMessage, start: Callable[[], object]) -> None:
                start()

        return Late()


@EACH
@pytest.mark.parametrize("order", ORDERS)
def test_messages_arrive_in_any_order_of_the_streams(name: str, order: int) -> None:
    stages = Stages(name, 3, 6, "int8:64" if order else "none")
    stages.run(order)
    passes = stages.parts if name == "evaluation" else 1
    assert len(stages.results) == 6 * (1 if name == "evaluation" else 2)
    assert all(np.isfinite(values[0]).all() for values in stages.results)
    if name == "evaluation" and not order:
        assert sorted({float(values[0][0]) for values in stages.results}) == [10.0 * i + passes for i in range(6)]


def test_receives_that_start_when_they_are_needed_deadlock() -> None:
    """1F1B: a stage sends the next activation while the following stage sends a gradient."""
    with pytest.raises(StreamError, match="no stream can continue"):
        LateStages("1f1b", 2, 4).run(0)


def nothing(*args: Any, **settings: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("method", "message"),
    [("lead", "no event orders (copy|NCCL)"), ("follow", "no event orders add .* behind")],
)
def test_a_missing_event_is_found(method: str, message: str) -> None:
    with patch.object(DevicePlace, method, nothing), pytest.raises(StreamError, match=message):
        Stages("1f1b", 2, 4).run(0)


def test_a_message_in_another_order_is_refused() -> None:
    stages = Stages("1f1b", 2, 4)
    ordered = OrderedMessages(stages.order, 0, 2, lambda message: message)
    with pytest.raises(RuntimeError, match="is not the next message of stage 0"):
        ordered.send(stages.order[1], lambda: None)
