"""Functions that start the calls of a group. Concurrent calls have separate MPI tags.

Two calls between the same ranks may be in flight at once, and slices of one call may overtake each other. Therefore
each slice has its own tags. A new call first waits for the earlier call that used the same tags. All ranks make calls
in the same order, so a call has the same tags on every rank.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcbench.comm.channel import Channel
from hpcbench.comm.execute import STAGES, Call, carry_out
from hpcbench.comm.memory import Slice, Tally
from hpcbench.comm.places import Place
from hpcbench.comm.progress import Progress, SliceQueue
from hpcbench.comm.steps import PlanStep
from hpcbench.comm.work import Work

DEPTH = 4
"""Number of slices in flight: enough to hide codec time behind transfers, and few enough to stay in cache."""
_CALLS, _SLICES = 32, 64
"""Number of calls, and number of slices per call, with distinct tags. Every MPI library supports 32 x 64 x 16 tags."""


class Calls:
    """The calls of one group.

    Parameters
    ----------
    progress
        Driver of the calls.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._planned = 0
        self._latest: deque[SliceQueue] = deque()
        self._in_order: SliceQueue | None = None

    def planned(
        self, call: Call, slices: Iterable[Sequence[PlanStep]], channel: Channel, *, how: str, plain: bool
    ) -> Work:
        """Execute this rank's steps of a plan, slice by slice.

        Parameters
        ----------
        how
            Name of the algorithm, for the counters.
        plain
            Whether the call bypasses the channel's codec.
        """
        if len(self._latest) == _CALLS and not (oldest := self._latest.popleft()).done:
            self._progress.finish(oldest)  # the new call reuses its tags
        first = self._planned % _CALLS * _SLICES
        self._planned += 1
        running = (
            # each slice has its own rounding seeds, so the order in which slices resume does not matter
            carry_out(replace(call, seed=call.seed + (k << 14)), todo, (first + k % _SLICES) * STAGES)
            for k, todo in enumerate(slices)
        )
        operation = SliceQueue(running, DEPTH)
        self._latest.append(operation)
        return self._start(operation, channel, call.place, call.tally, how=how, plain=plain)

    def at_once(
        self,
        slice_: Slice,
        channel: Channel,
        place: Place,
        tally: Tally,
        *,
        how: str,
        plain: bool = False,
        in_order: bool = False,
    ) -> Work:
        """Start a single-slice call in the caller's thread.

        Parameters
        ----------
        in_order
            Whether the call uses several of MPI's own collectives. MPI requires the same order of collectives on all
            ranks, so the previous call of this kind is completed first.
        """
        if in_order and self._in_order is not None and not self._in_order.done:
            self._progress.finish(self._in_order)
        operation = SliceQueue([slice_], 1, at_once=True)
        if in_order:
            self._in_order = operation
        return self._start(operation, channel, place, tally, how=how, plain=plain)

    def _start(
        self, operation: SliceQueue, channel: Channel, place: Place, tally: Tally, *, how: str, plain: bool
    ) -> Work:
        counters = channel.counters
        counters.calls += 1
        counters.plain_calls += plain and channel.codec.name != "none"
        counters.algorithms[how] = counters.algorithms.get(how, 0) + 1
        self._progress.start(operation)
        return Work(self._progress, operation, channel, tally, place)
