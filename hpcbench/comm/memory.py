"""Where the values of an operation lie, and how messages come from there and get there.

The executor knows steps and requests; a memory knows bytes. So the same executor serves arrays of the host, where all
of this is plain calls, and those of a GPU (gpu_memory.py), where a message is something that will be there later.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.base import Codec
from hpcbench.comm import frame
from hpcbench.comm.arrays import Array
from hpcbench.comm.recorder import ChannelRecorder
from hpcbench.comm.rounding import narrow, widen
from hpcbench.comm.scratch import Scratch


class Pending(Protocol):
    """Work of a device that somebody waits for."""

    def done(self) -> bool:
        """Whether it has come to its end; asked until it says yes."""


Slice = Generator[list[MPI.Request] | Pending, list[MPI.Status], None]
"""Yields what it waits for; is resumed with the statuses of requests."""


@dataclass
class Tally:
    """What one operation did on this rank. Seconds of all its slices together."""

    message_bytes: int = 0
    wire_bytes: int = 0
    coded_bytes: int = 0
    """Message bytes that went through the codec."""
    network_bytes: int = 0
    """Wire bytes that left the node."""
    encode_s: float = 0.0
    decode_s: float = 0.0
    lost_overflows: int = 0
    """Messages with values that were not finite, by a codec that does not tell the receiver."""
    recorder: ChannelRecorder | None = None
    """Is told of each piece of the codec's work, where the step is traced."""

    def encoded(self, begin: float) -> None:
        """Values have been encoded since `begin`."""
        end = time.perf_counter()
        self.encode_s += end - begin
        if self.recorder is not None:
            self.recorder.coded("encode", begin, end)

    def decoded(self, begin: float) -> None:
        """Values have been decoded since `begin`."""
        end = time.perf_counter()
        self.decode_s += end - begin
        if self.recorder is not None:
            self.recorder.coded("decode", begin, end)


class Message(Protocol):
    """A part of a vector as it travels."""

    @property
    def pending(self) -> Pending | None:
        """To be waited for before the rest is looked at."""

    @property
    def content(self) -> Any:
        """What MPI sends: bytes."""

    @property
    def wire_bytes(self) -> int:
        """Of it, without the checksum."""


class Memory(Protocol):
    """Serves the steps of one slice: all that it lends comes back when the slice ends."""

    @property
    def ahead(self) -> bool:
        """Whether all messages of a step are begun before the first one is sent."""

    def encode(self, values: Any, residual: Any, seed: int) -> Message:
        """Values in encoded form."""

    def plain(self, values: Any) -> Message:
        """Values as they are. They may not change before the message has left."""

    def inbox(self, n: int, *, coded: bool) -> Any:
        """Where MPI puts a message of `n` values."""

    def inbox_of(self, values: Any) -> Any:
        """Where MPI puts a plain message that replaces `values`."""

    def arrived(self, inbox: Any, nbytes: int, sender: int) -> Message:
        """The encoded message that has come. Raises TransitError where it is seen to be damaged."""

    def decode(self, message: Any, out: Any, *, accumulate: bool = False) -> None:
        """What an encoded message holds."""

    def unpack(self, inbox: Any, out: Any, *, accumulate: bool = False) -> None:
        """What a plain message holds."""

    def round_in_place(self, values: Any) -> None:
        """Make values what their plain message holds."""

    def copy(self, values: Any, to: Any = None) -> Any:
        """A copy, by default one that lasts as long as the slice."""

    def add(self, total: Any, values: Any) -> None:
        """Add to the total."""

    def finish(self) -> Pending | None:
        """What is still to be waited for when the steps are done."""

    def give_back(self) -> None:
        """Take back all that was lent."""


@dataclass(slots=True)
class HostMessage:
    """Bytes that are there."""

    content: Array
    wire: Array
    wire_bytes: int
    pending: ClassVar[None] = None


class HostMemory:
    """NumPy's arrays.

    Parameters
    ----------
    codec, dtype
        Of the operation: values of another type are rounded to `dtype` when they are sent.
    scratch
        Lends message buffers.
    tally
        Counts the time of the codec.
    sealed
        Whether encoded messages carry a checksum.
    """

    ahead = False
    """The first one is on its way while the second one is encoded."""

    def __init__(self, codec: Codec, dtype: np.dtype[Any], scratch: Scratch, tally: Tally, *, sealed: bool) -> None:
        self._codec, self._dtype, self._scratch, self._tally = codec, dtype, scratch, tally
        self._seal = frame.BYTES if sealed else 0
        self._lent: list[Array] = []

    def encode(self, values: Array, residual: Array | None, seed: int) -> HostMessage:
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
        content = self._rounded(values).view(np.uint8)
        return HostMessage(content, content, content.nbytes)

    def inbox(self, n: int, *, coded: bool) -> Array:
        nbytes = self._codec.wire_bytes(n, self._dtype) + self._seal if coded else n * self._dtype.itemsize
        return self._borrow(nbytes)

    def inbox_of(self, values: Array) -> Array:
        return values.view(np.uint8) if values.dtype == self._dtype else self.inbox(values.size, coded=False)

    def arrived(self, inbox: Array, nbytes: int, sender: int) -> HostMessage:
        content = inbox[:nbytes]
        return HostMessage(content, frame.opened(content, sender) if self._seal else content, nbytes - self._seal)

    def decode(self, message: HostMessage, out: Array, *, accumulate: bool = False) -> None:
        start = time.perf_counter()
        if out.dtype == self._dtype:
            self._codec.decode(message.wire, out, accumulate=accumulate)
        else:
            # a message holds values of its type: whoever passes them on, plain or encoded, passes on the same
            values = self._borrow(out.size * self._dtype.itemsize).view(self._dtype)
            self._codec.decode(message.wire, values)
            widen(values, out, accumulate=accumulate)
        self._tally.decoded(start)

    def unpack(self, inbox: Array, out: Array, *, accumulate: bool = False) -> None:
        widen(inbox[: out.size * self._dtype.itemsize].view(self._dtype), out, accumulate=accumulate)

    def round_in_place(self, values: Array) -> None:
        if values.dtype != self._dtype:
            widen(self._rounded(values), values)

    def _rounded(self, values: Array, residual: Array | None = None) -> Array:
        """Values in the type in which they travel; what they lose goes to the residual."""
        if values.dtype == self._dtype:
            return values
        rounded = self._borrow(values.size * self._dtype.itemsize).view(self._dtype)
        narrow(values, rounded, residual)
        return rounded

    def copy(self, values: Array, to: Array | None = None) -> Array:
        copied = self._borrow(values.nbytes).view(values.dtype) if to is None else to
        np.copyto(copied, values)
        return copied

    def add(self, total: Array, values: Array) -> None:
        total += values

    def finish(self) -> None:
        return None

    def give_back(self) -> None:
        for buffer in self._lent:
            self._scratch.give_back(buffer)
        self._lent.clear()

    def _borrow(self, nbytes: int) -> Array:
        buffer: Array = self._scratch.take(nbytes)
        self._lent.append(buffer)
        return buffer[:nbytes]
