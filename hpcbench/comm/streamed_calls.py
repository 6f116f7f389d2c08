"""Calls of a group whose GPU arrays are transported by NCCL.

A call immediately enqueues all its work in the caller's thread. `wait` makes the caller's current stream wait for the
call; the host does not wait. Times are read from events when the clock is settled. MPI still transports host arrays.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hpcbench.comm.accelerator import DeviceArray, StreamEvent
from hpcbench.comm.channel import Channel
from hpcbench.comm.execute import Call
from hpcbench.comm.memory import Pending, Tally
from hpcbench.comm.nccl import Communicator
from hpcbench.comm.nccl_library import NcclLibrary
from hpcbench.comm.places import DevicePlace
from hpcbench.comm.relay import Relay, hop
from hpcbench.comm.steps import PeerSpan, PlanStep
from hpcbench.comm.stream_execute import GroupOrder, Lane, StreamCarrier, carry_out_on_streams
from hpcbench.comm.work import NEVER_WAITED, Work

LANES = 2
"""Number of slices in flight."""


class StreamWork(Work):
    """A call with enqueued work.

    Parameters
    ----------
    channel, tally, place
        As in `Work`.
    spans
        Start and end of the call on each of its lanes.
    pending
        Codec timings.
    arrays
        Object that owns the call's arrays. A reference is held until the lanes have completed their work.
    """

    def __init__(
        self,
        channel: Channel,
        tally: Tally,
        place: DevicePlace,
        spans: Sequence[tuple[StreamEvent, StreamEvent]],
        pending: Sequence[Pending],
        arrays: object,
    ) -> None:
        super().__init__(None, None, channel, tally, None)
        self._on: DevicePlace | None = place
        self._spans, self._pending, self._arrays = spans, list(pending), arrays
        self._seconds: list[float] = []
        self._enqueued_s = 0.0
        self._enqueuing = place.called, place.clock.mark()

    def wait(self) -> None:
        """Make the caller's current stream wait for the call, and count the call. The host does not wait."""
        place, self._on = self._on, None
        if place is None:
            return
        if all(end.done() for _, end in self._spans):  # a sent copy is then free before the clock is settled
            self._arrays = None
        start = place.clock.mark()
        place.follow([end for _, end in self._spans])
        self._channel.counters.add_messages(self._tally)  # codec times are not known yet
        place.clock.count(*self._enqueuing, self._set_enqueued)
        for begin, end in self._spans:
            place.clock.count(begin, end, self._took)
        end_of_wait = place.clock.mark()
        place.clock.count(start, end_of_wait, self._exposed)
        if self._channel.recorder is not None:
            self._channel.recorder.waited(place.clock, start, end_of_wait)

    @property
    def done(self) -> bool:
        """Whether the call has completed, so that `wait` does not delay the caller's stream."""
        return self._on is None or all(end.done() for _, end in self._spans)

    def _set_enqueued(self, seconds: float) -> None:
        self._enqueued_s = seconds

    def _took(self, seconds: float) -> None:
        """Count the call when the end times on all lanes are known."""
        self._seconds.append(seconds)
        if len(self._seconds) < len(self._spans):
            return
        counters, tally = self._channel.counters, self._tally
        for pending in self._pending:
            if not pending.done():
                raise RuntimeError("a lane has ended before the codec has finished on this lane")
        self._pending.clear()
        self._arrays = None
        total = max(self._seconds)
        counters.encode_s += tally.encode_s
        counters.decode_s += tally.decode_s
        counters.transfer_s += max(0.0, total - tally.encode_s - tally.decode_s)
        counters.hidden_s += total
        self._not_exposed = total
        self._exposed(self._enqueued_s)
        recorder = self._channel.recorder
        if recorder is not None:
            longest = self._spans[self._seconds.index(total)]
            recorder.call_on_device(*longest, tally.message_bytes, tally.wire_bytes)

    def __del__(self) -> None:
        if self._on is not None:
            warnings.warn(NEVER_WAITED, ResourceWarning, stacklevel=1)


class StreamedCalls:
    """The calls of one communicator.

    Parameters
    ----------
    communicator
        The communicator.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._order = GroupOrder(communicator)
        self._lanes: list[Lane] = []

    def planned(
        self,
        call: Call,
        slices: Iterable[Sequence[PlanStep]],
        channel: Channel,
        *,
        how: str,
        plain: bool,
        may_change: bool = False,
    ) -> Work:
        """Execute this rank's steps of a plan.

        Parameters
        ----------
        how, plain
            As in `Calls.planned`.
        may_change
            Whether the caller may change the sent values immediately. If so, the caller's stream waits until the values
            are encoded.

        Raises
        ------
        ValueError
            The codec's message size varies.
        """
        if not call.codec.fixed_size:
            raise ValueError(
                f"codec {call.codec.name}: its messages vary in size, but NCCL needs their sizes before they "
                "arrive: choose a codec of fixed size, or set train.transport to mpi"
            )
        place = _on_device(call.place)

        def work(lanes: Sequence[Lane]) -> list[Pending]:
            pending, encoded = carry_out_on_streams(call, slices, lanes, self._order)
            if may_change:
                place.follow(encoded)
            return pending

        return self._start(work, channel, place, call.tally, call, how=how, plain=plain)

    def by_library(
        self,
        call: Callable[[NcclLibrary, DeviceArray, DeviceArray], object],
        source: DeviceArray,
        target: DeviceArray,
        place: DevicePlace,
        channel: Channel,
        tally: Tally,
        *,
        how: str,
        plain: bool,
    ) -> Work:
        """Run an NCCL collective on `source` and `target`, or on copies in the dtype in which values are sent."""
        dtype = channel.travels_as(source.dtype)

        def work(lanes: Sequence[Lane]) -> list[Pending]:
            lane = lanes[0]
            accelerator, pool = lane.pools.accelerator, lane.pools.device
            here, there, lent = source, target, []
            if dtype != source.dtype:
                rooms = []
                for values in (source,) if target is source else (source, target):
                    lent.append(pool.take(values.size * dtype.itemsize))
                    rooms.append(lent[-1][: values.size * dtype.itemsize].view(dtype))
                here, there = rooms[0], rooms[-1]
                accelerator.convert(here, source, lane.stream)
            accelerator.use()
            self._order.before(accelerator, lane.stream)
            call(NcclLibrary(self._communicator, lane.stream), here, there)
            self._order.after(accelerator, lane.stream)
            if there is not target:
                accelerator.convert(target, there, lane.stream)
            for buffer in lent:
                pool.give_back(buffer)
            return []

        return self._start(work, channel, place, tally, (source, target), how=how, plain=plain, lanes=1)

    def hop(self, call: Call, to: PeerSpan, of: PeerSpan, relay: Relay, channel: Channel) -> Work:
        """Make one hop of a relay. The relay's blocks stay in buffers of the first lane."""

        def work(lanes: Sequence[Lane]) -> list[Pending]:
            (lane,) = lanes
            carrier, pending = StreamCarrier(self._order, lane), []
            moves = hop(replace(call, carrier=carrier), to, of, relay, 0, lane.memory(call))
            try:
                awaited = next(moves)
                while True:
                    if isinstance(awaited, list):
                        carrier.flush()
                        awaited = moves.send(awaited)
                    else:
                        pending.append(awaited)
                        awaited = moves.send([])
            except StopIteration:
                pass
            return pending

        return self._start(work, channel, _on_device(call.place), call.tally, call, how="direct", plain=False, lanes=1)

    def free(self) -> None:
        """Free the communicator (a final collective call)."""
        for lane in self._lanes:
            lane.mark().wait()
        self._communicator.free()

    def _start(
        self,
        work: Callable[[Sequence[Lane]], list[Pending]],
        channel: Channel,
        place: DevicePlace,
        tally: Tally,
        arrays: object,
        *,
        how: str,
        plain: bool,
        lanes: int = LANES,
    ) -> Work:
        """Enqueue work that starts after the current work of the caller's stream."""
        if not self._lanes:
            self._lanes = [Lane(pools) for pools in place.pools.lanes(LANES)]
        used = self._lanes[:lanes]
        place.lead([lane.stream for lane in used])
        begins = [lane.mark() for lane in used]
        pending = work(used)
        counters = channel.counters
        counters.calls += 1
        counters.plain_calls += plain and channel.codec.name != "none"
        counters.algorithms[how] = counters.algorithms.get(how, 0) + 1
        spans = [(begin, lane.mark()) for begin, lane in zip(begins, used, strict=True)]
        return StreamWork(channel, tally, place, spans, pending, arrays)


def _on_device(place: object) -> DevicePlace:
    assert isinstance(place, DevicePlace), "NCCL sends only GPU arrays"
    return place
