"""What an operation returns: to be waited for, and counted then."""

import time
import warnings

from hpcbench.comm.channel import Channel
from hpcbench.comm.memory import Tally
from hpcbench.comm.progress import Operation, Progress


class Work:
    """An operation under way."""

    def __init__(self, progress: Progress | None, operation: Operation | None, channel: Channel, tally: Tally) -> None:
        self._progress, self._operation = progress, operation
        self._channel, self._tally = channel, tally

    @classmethod
    def nothing(cls, channel: Channel) -> "Work":
        """What needed no messages."""
        return cls(None, None, channel, Tally())

    def in_background(self) -> "Work":
        """Let it move while the caller computes."""
        if self._progress is not None:
            self._progress.keep_moving()
        return self

    def wait(self) -> None:
        """Return when the result is in the caller's buffers; counts what happened. Once for each operation."""
        operation = self._operation
        if operation is None or self._progress is None:
            return
        self._operation = None
        start = time.perf_counter()
        self._progress.finish(operation)
        exposed = min(time.perf_counter() - start, operation.seconds)
        counters, tally = self._channel.counters, self._tally
        counters.message_bytes += tally.message_bytes
        counters.wire_bytes += tally.wire_bytes
        counters.network_bytes += tally.network_bytes
        counters.lost_overflows += tally.lost_overflows
        counters.encode_s += tally.encode_s
        counters.decode_s += tally.decode_s
        counters.transfer_s += max(0.0, operation.seconds - tally.encode_s - tally.decode_s)
        counters.exposed_s += exposed
        counters.hidden_s += operation.seconds - exposed

    def __del__(self) -> None:
        if self._operation is not None:
            warnings.warn("an operation was never waited for: its result is undefined", ResourceWarning, stacklevel=1)

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._operation is None or self._operation.done
