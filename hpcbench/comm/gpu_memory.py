"""Messages of GPU arrays. Values are encoded, decoded and summed on the GPU. Only wire bytes pass through the host.

With a GPU-aware MPI library, messages go from device memory to device memory. Otherwise, messages are copied to pinned
host memory after encoding, and back to the device before decoding. MPI libraries ignore streams. Therefore a message is
passed to MPI only after an event shows that its bytes are ready. A buffer is reused only after an event shows that the
buffer is no longer read. Threads do not block on events: the executor polls events and continues with other slices.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.codecs.cuda import Length
from hpcbench.comm import frame
from hpcbench.comm.accelerator import DeviceArray, StreamEvent
from hpcbench.comm.arrays import Array
from hpcbench.comm.gpu_pools import Pools
from hpcbench.comm.memory import Pending, Tally
from hpcbench.comm.scratch import Scratch


class DeviceMessage:
    """A message that is ready when the device has finished writing its bytes.

    Attributes
    ----------
    wire
        The encoded bytes on the device.
    pending
        The work that creates the message, or None when the work is done.
    """

    def __init__(self, content: Any, wire: DeviceArray, wire_bytes: int) -> None:
        self.content, self.wire, self.wire_bytes = content, wire, wire_bytes
        self.pending: Pending | None = None


class _Outgoing:
    """Device work from the start of encoding until MPI may read the message."""

    def __init__(self, memory: "DeviceMemory", message: DeviceMessage, used: int | Length, begin: StreamEvent) -> None:
        self._memory, self._message, self._used, self._begin = memory, message, used, begin
        self._encoded = memory.mark()
        self._copied: StreamEvent | None = None
        if isinstance(used, int):
            self._send_to_host()

    def done(self) -> bool:
        if self._copied is None:
            if not self._encoded.done():
                return False
            self._send_to_host()  # the length is now known
        assert self._copied is not None
        if not self._copied.done():
            return False
        tally = self._memory.tally
        tally.encode_s += self._encoded.since(self._begin)
        if tally.recorder is not None:
            tally.recorder.coded_on_device("encode", self._begin, self._encoded)
        message = self._message
        if not self._memory.aware:
            content, used = message.content, message.wire_bytes
            message.content = frame.seal(content, used) if self._memory.seal else content[:used]
        message.pending = None
        return True

    def _send_to_host(self) -> None:
        message, used = self._message, int(self._used)
        message.wire, message.wire_bytes = message.wire[:used], used
        if self._memory.aware:
            message.content = message.wire
            self._copied = self._encoded
        else:
            self._memory.transfer(message.content[:used], message.wire)
            self._copied = self._memory.mark()


class _Copied:
    """An unencoded message that is being copied to the host, or whose values are still being computed."""

    def __init__(self, message: DeviceMessage, event: StreamEvent) -> None:
        self._message, self._event = message, event

    def done(self) -> bool:
        if self._event.done():
            self._message.pending = None
        return self._message.pending is None


class _Finish:
    """Completion of a slice on the device."""

    def __init__(self, memory: "DeviceMemory", decodings: list[tuple[StreamEvent, StreamEvent, int | Length]]) -> None:
        self._memory, self._decodings = memory, decodings
        self.event = memory.mark()

    def done(self) -> bool:
        if not self.event.done():
            return False
        tally = self._memory.tally
        for begin, end, length in self._decodings:
            int(length)  # raises an error if the stream is malformed
            tally.decode_s += end.since(begin)
            if tally.recorder is not None:
                tally.recorder.coded_on_device("decode", begin, end)
        return True


class DeviceMemory:
    """Memory of a slice whose values are on a device. The class implements hpcbench.comm.memory.Memory.

    Parameters
    ----------
    codec
        The operation's CPU codec. The device codec with the same name is used.
    dtype
        Dtype in which values are sent. Values of other dtypes are rounded before sending.
    pools
        The device's pools.
    stream
        Stream of the operation.
    tally
        Tally of the codec's time on the device.
    ended
        Callback that receives the event at the end of the slice.
    """

    ahead = True
    """Always True: all messages of a step are started before the first message is sent, to keep the device busy."""

    def __init__(
        self,
        codec: Codec,
        dtype: np.dtype[Any],
        pools: Pools,
        stream: int,
        tally: Tally,
        ended: Callable[[StreamEvent], object],
        *,
        sealed: bool,
    ) -> None:
        self._ended = ended
        self._host_codec, self._dtype, self._pools, self._stream = codec, dtype, pools, stream
        self._codec = pools.codec(codec)
        self._accelerator = pools.accelerator
        self.aware, self.tally = pools.aware, tally
        self.seal = frame.BYTES if sealed and not pools.aware else 0
        self._lent: list[tuple[Scratch, Any]] = []
        self._decodings: list[tuple[StreamEvent, StreamEvent, int | Length]] = []

    def encode(self, values: DeviceArray, residual: Any, seed: int) -> DeviceMessage:
        """Start encoding values on the device. The message is ready when the device has finished."""
        room = self._host_codec.wire_bytes(values.size, self._dtype)
        wire = self._borrow(self._pools.device, room)
        content = wire if self.aware else self._borrow(self._pools.host, room + self.seal)
        begin = self.mark()
        sent = self._rounded(values, residual)
        used = self._codec.encode(sent, wire, residual=residual, seed=seed, stream=self._stream)
        message = DeviceMessage(content, wire, room)
        message.pending = _Outgoing(self, message, used, begin)
        return message

    def plain(self, values: DeviceArray) -> DeviceMessage:
        """Start creating an unencoded message."""
        sent = self._rounded(values).view(np.uint8)
        content: Any = sent
        if not self.aware:
            content = self._borrow(self._pools.host, sent.nbytes)
            self.transfer(content, sent)
        message = DeviceMessage(content, sent, sent.nbytes)
        message.pending = _Copied(message, self.mark())
        return message

    def inbox(self, n: int, *, coded: bool) -> Any:
        """Borrow a device or host buffer for an incoming message of `n` values."""
        nbytes = self._host_codec.wire_bytes(n, self._dtype) + self.seal if coded else n * self._dtype.itemsize
        return self._borrow(self._pools.device if self.aware else self._pools.host, nbytes)

    def inbox_of(self, values: DeviceArray) -> Any:
        """Borrow a separate buffer for an unencoded message, because the device may still use the values."""
        return self.inbox(values.size, coded=False)

    def arrived(self, inbox: Any, nbytes: int, sender: int) -> DeviceMessage:
        """Verify the checksum of a received message, and copy the message to the device."""
        content = inbox[:nbytes]
        if self.aware:
            return DeviceMessage(content, content, nbytes)
        encoded = frame.opened(content, sender) if self.seal else content
        wire = self._borrow(self._pools.device, encoded.size)
        self.transfer(wire, encoded)
        return DeviceMessage(content, wire, encoded.size)

    def decode(self, message: DeviceMessage, out: DeviceArray, *, accumulate: bool = False) -> None:
        """Decode a message into `out`, or add it to `out`."""
        begin = self.mark()
        if out.dtype == self._dtype:
            length = self._codec.decode(message.wire, out, accumulate=accumulate, stream=self._stream)
        else:
            # round to the message's dtype first: a rank that forwards the values must forward identical bits
            values = self._travelling(out.size)
            length = self._codec.decode(message.wire, values, stream=self._stream)
            self._accelerator.convert(out, values, self._stream, accumulate=accumulate)
        self._decodings.append((begin, self.mark(), length))

    def unpack(self, inbox: Any, out: DeviceArray, *, accumulate: bool = False) -> None:
        """Write an unencoded message to `out`, or add it to `out`."""
        content = inbox[: out.size * self._dtype.itemsize]
        replaces = out.dtype == self._dtype and not accumulate
        if replaces:
            self.transfer(out, content)
            return
        values = content.view(self._dtype)
        if not self.aware:
            values = self._travelling(out.size)
            self.transfer(values, content)
        if out.dtype == self._dtype:
            self._accelerator.add(out, values, self._stream)
        else:
            self._accelerator.convert(out, values, self._stream, accumulate=accumulate)

    def round_in_place(self, values: DeviceArray) -> None:
        """Round values in place to the dtype in which they are sent, to match the other ranks."""
        if values.dtype != self._dtype:
            self._accelerator.convert(values, self._rounded(values), self._stream)

    def copy(self, values: DeviceArray, to: DeviceArray | None = None) -> DeviceArray:
        """Start a copy of values on the device."""
        copied = self._borrow(self._pools.device, values.nbytes).view(values.dtype) if to is None else to
        self.transfer(copied, values)
        return copied

    def add(self, total: DeviceArray, values: DeviceArray) -> None:
        """Add values to the total on the device."""
        self._accelerator.add(total, values, self._stream)

    def finish(self) -> _Finish:
        """Record an event after the slice's last work on the device."""
        finish = _Finish(self, self._decodings)
        self._ended(finish.event)
        return finish

    def give_back(self) -> None:
        """Return all buffers to their pools."""
        for pool, buffer in self._lent:
            pool.give_back(buffer)
        self._lent.clear()

    def mark(self) -> StreamEvent:
        """Record an event after all work enqueued on the operation's stream so far."""
        return self._accelerator.mark(self._stream)

    def transfer(self, target: DeviceArray | Array, source: DeviceArray | Array) -> None:
        """Copy bytes on the operation's stream."""
        self._accelerator.copy(target, source, self._stream)

    def _rounded(self, values: DeviceArray, residual: Any = None) -> DeviceArray:
        """Round values to the dtype in which they are sent. Add rounding errors to the residual."""
        if values.dtype == self._dtype:
            return values
        rounded = self._travelling(values.size)
        lacked = None if residual is None else self._accelerator.array(residual, self._stream)
        self._accelerator.convert(rounded, values, self._stream, residual=lacked)
        return rounded

    def _travelling(self, n: int) -> DeviceArray:
        """Borrow a device buffer for `n` values in the dtype in which they are sent."""
        room: DeviceArray = self._borrow(self._pools.device, n * self._dtype.itemsize).view(self._dtype)
        return room

    def _borrow(self, pool: Scratch, nbytes: int) -> Any:
        buffer = pool.take(nbytes)
        self._lent.append((pool, buffer))
        return buffer[:nbytes]
