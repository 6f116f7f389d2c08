"""Stream-ordered execution of plan steps: the host enqueues all work and never waits.

The steps have the same meaning as in `execute`. Each slice is executed on one stream, which is called its lane. A step
consists of kernels that create its messages, one NCCL group of sends and receives, and kernels that decode and sum.
With two slices in flight, the kernels of one slice run during the transfers of the other.

NCCL operations on a communicator run one after another, in the order in which this rank enqueues them. Therefore all
ranks enqueue the groups of two slices in the order of their stages. A rank without messages in a stage omits its group,
which does not change the order of the other groups. Ordering the groups by the number of completed steps would deadlock
if ranks have different numbers of steps.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from hpcbench.comm.accelerator import Accelerator, DeviceArray, StreamEvent
from hpcbench.comm.execute import SUMS, Call, SliceRun
from hpcbench.comm.gpu_memory import DeviceMemory
from hpcbench.comm.gpu_pools import Pools
from hpcbench.comm.memory import Pending
from hpcbench.comm.nccl import Communicator
from hpcbench.comm.steps import PlanStep


class Lane:
    """A stream of a communicator, with buffers of its own.

    Stream order protects the buffers. Buffers are returned as soon as their last use has been enqueued.

    Parameters
    ----------
    pools
        Buffers that no other stream uses.
    """

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        self.stream = pools.stream()

    def mark(self) -> StreamEvent:
        """Record an event after all work enqueued on the lane so far."""
        return self.pools.accelerator.mark(self.stream)

    def memory(self, call: Call) -> DeviceMemory:
        """Return memory for messages of a call. These messages have no checksum, because the host never sees them."""
        return DeviceMemory(
            call.codec, call.dtype, self.pools, self.stream, call.tally, lambda event: None, sealed=False
        )


class GroupOrder:
    """The order of NCCL operations on all lanes of a communicator."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self._last: tuple[int, StreamEvent] | None = None

    def before(self, accelerator: Accelerator, stream: int) -> None:
        """Make a stream wait for the last operation, if that operation is on another stream."""
        if self._last is not None and self._last[0] != stream:
            accelerator.follow(stream, self._last[1])

    def after(self, accelerator: Accelerator, stream: int) -> None:
        """Record the last operation, which was just enqueued on a stream."""
        self._last = stream, accelerator.mark(stream)


class StreamCarrier:
    """The messages of a lane. `flush` passes the collected messages to NCCL as one group.

    Instead of a request, the byte count of a message is returned, because all message sizes are known in advance.
    """

    def __init__(self, order: GroupOrder, lane: Lane) -> None:
        self._order, self._lane = order, lane
        self.rank, self.size = order.communicator.rank, order.communicator.size
        self._sends: list[tuple[DeviceArray, int]] = []
        self._receives: list[tuple[DeviceArray, int]] = []

    def send(self, content: Any, peer: int, tag: int, *, varies: bool) -> int:
        """Add a message to the group."""
        if varies:
            raise ValueError(
                "messages of a codec with variable message sizes cannot be sent over NCCL: set train.transport to mpi"
            )
        self._sends.append((content, peer))
        return int(content.nbytes)

    def receive(self, inbox: Any, peer: int, tag: int, *, varies: bool) -> int:
        """Add a receive to the group."""
        self._receives.append((inbox, peer))
        return int(inbox.nbytes)

    def count(self, status: int) -> int:
        """Return the byte count of a received message."""
        return status

    def flush(self) -> None:
        """Enqueue a group of all messages since the last flush."""
        if not self._sends and not self._receives:
            return
        communicator, stream, accelerator = self._order.communicator, self._lane.stream, self._lane.pools.accelerator
        accelerator.use()
        self._order.before(accelerator, stream)
        with communicator.group():
            for content, peer in self._sends:
                communicator.send(content, peer, stream)
            for inbox, peer in self._receives:
                communicator.receive(inbox, peer, stream)
        self._order.after(accelerator, stream)
        self._sends.clear()
        self._receives.clear()


class StreamRun(SliceRun):
    """Execution of one slice on a lane.

    Attributes
    ----------
    pending
        Codec timings, which are available when the lane has completed its work.
    encoded
        Events recorded after the kernels that create encoded messages.
    """

    def __init__(self, call: Call, lane: Lane, order: GroupOrder) -> None:
        self.pending: list[Pending] = []
        self._on_lane = StreamCarrier(order, lane)
        memory = lane.memory(call)
        super().__init__(replace(call, carrier=self._on_lane), 0, memory)
        self._lane, self._memory_of_lane = lane, memory
        self.encoded: list[StreamEvent] = []

    def step(self, step: PlanStep) -> None:
        """Enqueue a step."""
        if not step.coded or step.combine in SUMS:
            self._decode_all()
        messages = list(self._begin(step))
        if step.coded and messages:
            self.encoded.append(self._lane.mark())
        posted = [self._expect(step, part) for part in step.receives]
        for part, message in zip(step.sends, messages, strict=True):
            self._send(step, part, message)
            if message.pending is not None:
                self.pending.append(message.pending)
        self._on_lane.flush()
        enqueue((self._sum if step.combine in SUMS else self._replace)(step, posted))

    def end(self) -> None:
        """Enqueue the remaining work, and return the buffers."""
        self._decode_all()
        self.pending.append(self._memory_of_lane.finish())
        self._memory.give_back()


def enqueue(arrivals: Generator[Any, Any, None]) -> None:
    """Run a generator that waits for messages.

    The messages are already available, because operations of a stream run in order.
    """
    try:
        awaited = next(arrivals)
        while True:
            awaited = arrivals.send(awaited)
    except StopIteration:
        pass


def carry_out_on_streams(
    call: Call, slices: Iterable[Sequence[PlanStep]], lanes: Sequence[Lane], order: GroupOrder
) -> tuple[list[Pending], list[StreamEvent]]:
    """Enqueue all slices of a call.

    Parameters
    ----------
    call
        Values shared by all slices of the operation.
    slices
        Steps of this rank in each slice.
    lanes
        Streams, assigned to slices round-robin.
    order
        Order of operations on the communicator.

    Returns
    -------
    pending : list of Pending
        Codec timings, which are available when the lanes have completed their work.
    encoded : list of StreamEvent
        Events recorded after the kernels that create encoded messages.
    """
    numbered: list[tuple[int, Sequence[PlanStep]]] = list(enumerate(slices))
    pending: list[Pending] = []
    encoded: list[StreamEvent] = []
    for first in range(0, len(numbered), len(lanes)):
        together = numbered[first : first + len(lanes)]
        # same seeds as in `Calls.planned`, so that stochastic rounding is bitwise identical
        runs = [
            StreamRun(replace(call, seed=call.seed + (k << 14)), lane, order)
            for (k, _), lane in zip(together, lanes, strict=False)
        ]
        turns = sorted(
            (stage, turn, place, step_number)
            for place, (_, steps) in enumerate(together)
            for step_number, (stage, turn) in enumerate(_stages(steps))
        )
        for _, _, place, step_number in turns:
            runs[place].step(together[place][1][step_number])
        for run in runs:
            run.end()
            pending += run.pending
            encoded += run.encoded
    return pending, encoded


def _stages(steps: Sequence[PlanStep]) -> list[tuple[int, int]]:
    """For each step, return its stage, and the number of earlier steps in the same stage."""
    return [(step.stage, sum(other.stage == step.stage for other in steps[:k])) for k, step in enumerate(steps)]
