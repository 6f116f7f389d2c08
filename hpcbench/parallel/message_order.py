"""A common order of all messages of a pipeline, for libraries whose messages have no tags, such as NCCL.

Over NCCL, the messages of a stage run one after another in the order in which the stage starts them. If two stages
started their common messages in different orders, each could wait for the other. Therefore, all stages start their
messages in the order of a pipeline whose passes take the same time on every stage. A stage starts a receive as soon as
all earlier messages have been started, long before it needs the values.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from hpcbench.parallel.schedule import Action

_SECONDS = {"forward": 1, "backward": 2}
"""Relative duration of each pass, which affects only the order of messages."""


class StageMessage(NamedTuple):
    """An activation, or the gradient of an activation, between parts `boundary` - 1 and `boundary`."""

    microbatch: int
    boundary: int
    forward: bool

    def sender(self, stages: int) -> int:
        """Return the stage that sends the message."""
        return (self.boundary - self.forward) % stages

    def receiver(self, stages: int) -> int:
        """Return the stage that receives the message."""
        return (self.boundary - (not self.forward)) % stages


def find_messages(
    action: Action, stage: int, stages: int, parts: int
) -> tuple[StageMessage | None, StageMessage | None]:
    """Return the message that an action needs, and the message that it creates."""
    part, i = action.chunk * stages + stage, action.microbatch
    before = StageMessage(i, part, action.work == "forward") if part else None
    behind = StageMessage(i, part + 1, action.work == "forward") if part + 1 < parts else None
    return (before, behind) if action.work == "forward" else (behind, before)


def order_messages(actions: Sequence[Iterable[Action]], parts: int) -> list[StageMessage]:
    """Return all messages in sending order.

    Parameters
    ----------
    actions
        Actions of each stage, in execution order.
    parts
        Number of parts of the model.

    Raises
    ------
    ValueError
        The actions cannot be carried out, because stages would wait for each other.
    """
    stages = len(actions)
    todo = [list(of_stage)[::-1] for of_stage in actions]
    free = [0] * stages
    sent: dict[StageMessage, int] = {}
    moved = True
    while moved:
        moved = False
        for stage, left in enumerate(todo):
            while left:
                needed, created = find_messages(left[-1], stage, stages, parts)
                if needed is not None and needed not in sent:
                    break
                action, moved = left.pop(), True
                free[stage] = max(free[stage], sent[needed] if needed else 0) + _SECONDS[action.work]
                if created is not None:
                    sent[created] = free[stage]
    if any(todo):
        raise ValueError(f"the stages of the pipeline wait for each other: {[left[-1] for left in todo if left]}")
    return sorted(sent, key=lambda message: (sent[message], message.sender(stages), message))


T = TypeVar("T")


class OrderedMessages(Generic[T]):
    """The messages of one stage. Receives are started as soon as all earlier messages have been started.

    Parameters
    ----------
    messages
        All messages of the pipeline, in the order of `order_messages`.
    stage, stages
        The stage and the number of stages.
    receive
        Function that starts to receive a message.
    """

    def __init__(
        self, messages: Iterable[StageMessage], stage: int, stages: int, receive: Callable[[StageMessage], T]
    ) -> None:
        self._stage, self._stages, self._receive = stage, stages, receive
        here = [m for m in messages if stage in (m.sender(stages), m.receiver(stages))]
        self._todo = here[::-1]
        self._received: dict[StageMessage, T] = {}
        self._start_receives()

    def send(self, message: StageMessage, start: Callable[[], object]) -> None:
        """Start to send the next message of this stage, and start the receives that follow it."""
        if not self._todo or self._todo.pop() != message:
            raise RuntimeError(f"{message} is not the next message of stage {self._stage}")
        start()
        self._start_receives()

    def take(self, message: StageMessage) -> T:
        """Return a started receive."""
        return self._received.pop(message)

    def _start_receives(self) -> None:
        while self._todo and self._todo[-1].receiver(self._stages) == self._stage:
            message = self._todo.pop()
            self._received[message] = self._receive(message)
