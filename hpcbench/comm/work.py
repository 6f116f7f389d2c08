"""Handle of a started operation. The operation is counted when the caller has waited for it."""

import warnings

from hpcbench.comm.channel import Channel
from hpcbench.comm.memory import Tally
from hpcbench.comm.places import Place
from hpcbench.comm.progress import Progress, SliceQueue

NEVER_WAITED = "wait() was never called for an operation: its result is undefined"


class Work:
    """An operation in progress."""

    def __init__(
        self,
        progress: Progress | None,
        operation: SliceQueue | None,
        channel: Channel,
        tally: Tally,
        place: Place | None,
    ) -> None:
        self._progress, self._operation = progress, operation
        self._channel, self._tally, self._place = channel, tally, place
        self._not_exposed = 0.0
        self._calling = None
        if operation and place:
            called = operation.begun if place.called is None else place.called
            self._calling = (called, place.clock.mark())

    @classmethod
    def nothing(cls, channel: Channel) -> "Work":
        """Return the handle of an operation that needed no messages."""
        return cls(None, None, channel, Tally(), None)

    def in_background(self) -> "Work":
        """Drive the operation while the caller computes."""
        if self._progress is not None:
            self._progress.keep_moving()
        return self

    def wait(self) -> None:
        """Wait until the result is in the caller's buffers, and count the operation.

        The method must be called once for each operation.
        """
        operation, place = self._operation, self._place
        if operation is None or self._progress is None or place is None:
            return
        self._operation = self._place = None
        start = place.clock.mark()
        self._progress.finish(operation)
        end = place.clock.mark()
        seconds = self._not_exposed = place.took(operation.seconds)
        counters, tally = self._channel.counters, self._tally
        counters.add_messages(tally)
        counters.transfer_s += max(0.0, seconds - tally.encode_s - tally.decode_s)
        counters.hidden_s += seconds
        if self._calling:
            place.clock.count(*self._calling, self._exposed)
        place.clock.count(start, end, self._exposed)
        recorder = self._channel.recorder
        if recorder is not None:
            recorder.call(operation.begun, operation.seconds, tally.message_bytes, tally.wire_bytes)
            if self._calling:
                recorder.waited(place.clock, *self._calling)
            recorder.waited(place.clock, start, end)

    def _exposed(self, seconds: float) -> None:
        """Count exposed communication: seconds that the caller was blocked."""
        exposed = min(seconds, self._not_exposed)
        self._not_exposed -= exposed
        self._channel.counters.exposed_s += exposed
        self._channel.counters.hidden_s -= exposed

    def __del__(self) -> None:
        if self._operation is not None:
            warnings.warn(NEVER_WAITED, ResourceWarning, stacklevel=1)

    @property
    def done(self) -> bool:
        """Whether `wait` would return immediately."""
        return self._operation is None or self._operation.done
