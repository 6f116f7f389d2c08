"""Memory that holds an operation's values. Messages are created from these values and written to this memory.

The executor handles steps and requests, whereas a memory handles bytes. Therefore one executor handles both host and
GPU arrays. Host calls finish immediately, whereas GPU messages become ready later (gpu_memory.py).
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm import frame
from hpcbench.comm.arrays import Array
from hpcbench.comm.counts import MessageCounts
from hpcbench.comm.recorder import ChannelRecorder
from hpcbench.comm.rounding import narrow, widen
from hpcbench.comm.scratch import Scratch


class Pending(Protocol):
    """Device work that a slice waits for."""

    def done(self) -> bool:
        """Return whether the work is done. Callers poll until the result is True."""


Slice = Generator[list[Any] | Pending, list[Any], None]
"""A generator that yields the work or requests to wait for.

The generator is resumed with the statuses of the carrier's requests.
"""


@dataclass
class Tally(MessageCounts):
    """Counts of one operation on this rank. Times are summed over slices."""

    recorder: ChannelRecorder | None = None
    """Recorder of the codec's work while a step is traced."""

    def encoded(self, begin: float) -> None:
        """Count the time since `begin` as encoding time."""
        end = time.perf_counter()
        self.encode_s += end - begin
        if self.recorder is not None:
            self.recorder.coded("encode", begin, end)

    def decoded(self, begin: float) -> None:
        """Count the time since `begin` as decoding time."""
        end = time.perf_counter()
        self.decode_s += end - begin
        if self.recorder is not None:
            self.recorder.coded("decode", begin, end)


class Message(Protocol):
    """A part of a vector in the form in which it is sent."""

    @property
    def pending(self) -> Pending | None:
        """Work to wait for before the other fields are used."""

    @property
    def content(self) -> Any:
        """The bytes to send."""

    @property
    def wire_bytes(self) -> int:
        """Message size in bytes, without the checksum."""


class Memory(Protocol):
    """The memory of one slice. Borrowed buffers are returned when the slice ends."""

    @property
    def ahead(self) -> bool:
        """Whether all messages of a step are started before the first message is sent."""

    def encode(self, values: Any, residual: Any, seed: int) -> Message:
        """Create an encoded message."""

    def plain(self, values: Any) -> Message:
        """Create an unencoded message. The values must not change until the message has been sent."""

    def inbox(self, n: int, *, coded: bool) -> Any:
        """Borrow a buffer for an incoming message of `n` values."""

    def inbox_of(self, values: Any) -> Any:
        """Return a buffer for an incoming unencoded message that replaces `values`."""

    def arrived(self, inbox: Any, nbytes: int, sender: int) -> Message:
        """Return the received encoded message. Raise TransitError if the message is damaged."""

    def decode(self, message: Any, out: Any, *, accumulate: bool = False) -> None:
        """Decode a message into `out`, or add it to `out`."""

    def unpack(self, inbox: Any, out: Any, *, accumulate: bool = False) -> None:
        """Write an unencoded message to `out`, or add it to `out`."""

    def round_in_place(self, values: Any) -> None:
        """Round values in place, as if they were sent in an unencoded message."""

    def copy(self, values: Any, to: Any = None) -> Any:
        """Copy values. By default, the copy is stored in memory that exists as long as the slice."""

    def add(self, total: Any, values: Any) -> None:
        """Add values to the total."""

    def finish(self) -> Pending | None:
        """End the slice. Return the work to wait for, or None."""

    def give_back(self) -> None:
        """Return all borrowed buffers."""


@dataclass(slots=True)
class HostMessage:
    """A message whose bytes are available."""

    content: Array
    wire: Array
    wire_bytes: int
    pending: ClassVar[None] = None


class HostMemory:
    """Memory of a slice whose values are NumPy arrays.

    Parameters
    ----------
    codec, dtype
        Codec and dtype of the operation. Values of other dtypes are rounded to `dtype` before sending.
    scratch
        Pool of message buffers.
    tally
        Tally of the codec time.
    sealed
        Whether encoded messages include a checksum.
    """

    ahead = False
    """Always False: the first message of a step is sent while the second message is encoded."""

    def __init__(self, codec: Codec, dtype: np.dtype[Any], scratch: Scratch, tally: Tally, *, sealed: bool) -> None:
        self._codec, self._dtype, self._scratch, self._tally = codec, dtype, scratch, tally
        self._seal = frame.BYTES if sealed else 0
        self._lent: list[Array] = []

    def encode(self, values: Array, residual: Array | None, seed: int) -> HostMessage:
        """Encode values and append the checksum."""
        bound = self._codec.wire_bytes(values.size, self._dtype)
        buffer = self._borrow(bound + self._seal)
        start = time.perf_counter()
        sent = self._rounded(values, residual)
        if not self._codec.carries_overflow:
            self._tally.lost_overflows += not np.isfinite(sent).all()
        used = self._codec.encode(sent, buffer[:bound], residual=residual, seed=seed)
        wire = buffer[:used]
        message = HostMessage(frame.seal(buffer, used) if self._seal else wire, wire, used)
        self._tally.encoded(start)
        return message

    def plain(self, values: Array) -> HostMessage:
        """Create an unencoded message."""
        content = self._rounded(values).view(np.uint8)
        return HostMessage(content, content, content.nbytes)

    def inbox(self, n: int, *, coded: bool) -> Array:
        """Borrow a buffer for an incoming message of `n` values."""
        nbytes = self._codec.wire_bytes(n, self._dtype) + self._seal if coded else n * self._dtype.itemsize
        return self._borrow(nbytes)

    def inbox_of(self, values: Array) -> Array:
        """Return the memory of the values, or a borrowed buffer if they are sent in a different dtype."""
        return values.view(np.uint8) if values.dtype == self._dtype else self.inbox(values.size, coded=False)

    def arrived(self, inbox: Array, nbytes: int, sender: int) -> HostMessage:
        """Verify the checksum of a received message."""
        content = inbox[:nbytes]
        return HostMessage(content, frame.opened(content, sender) if self._seal else content, nbytes - self._seal)

    def decode(self, message: HostMessage, out: Array, *, accumulate: bool = False) -> None:
        """Decode a message into `out`, or add it to `out`."""
        start = time.perf_counter()
        if out.dtype == self._dtype:
            self._codec.decode(message.wire, out, accumulate=accumulate)
        else:
            # round to the message's dtype first: a rank that forwards the values must forward identical bits
            values = self._borrow(out.size * self._dtype.itemsize).view(self._dtype)
            self._codec.decode(message.wire, values)
            widen(values, out, accumulate=accumulate)
        self._tally.decoded(start)

    def unpack(self, inbox: Array, out: Array, *, accumulate: bool = False) -> None:
        """Write an unencoded message to `out`, or add it to `out`."""
        widen(inbox[: out.size * self._dtype.itemsize].view(self._dtype), out, accumulate=accumulate)

    def round_in_place(self, values: Array) -> None:
        """Round values in place, as if they were sent in an unencoded message."""
        if values.dtype != self._dtype:
            widen(self._rounded(values), values)

    def _rounded(self, values: Array, residual: Array | None = None) -> Array:
        """Round values to the dtype in which they are sent. Add rounding errors to the residual."""
        if values.dtype == self._dtype:
            return values
        rounded = self._borrow(values.size * self._dtype.itemsize).view(self._dtype)
        narrow(values, rounded, residual)
        return rounded

    def copy(self, values: Array, to: Array | None = None) -> Array:
        """Copy values to `to`, or to borrowed memory if `to` is None."""
        copied = self._borrow(values.nbytes).view(values.dtype) if to is None else to
        np.copyto(copied, values)
        return copied

    def add(self, total: Array, values: Array) -> None:
        """Add values to the total."""
        total += values

    def finish(self) -> None:
        """Do nothing, because no work remains."""

    def give_back(self) -> None:
        """Return all borrowed buffers to the scratch pool."""
        for buffer in self._lent:
            self._scratch.give_back(buffer)
        self._lent.clear()

    def _borrow(self, nbytes: int) -> Array:
        buffer: Array = self._scratch.take(nbytes)
        self._lent.append(buffer)
        return buffer[:nbytes]
