"""GPU codecs that encode and decode in device memory.

The output of GPU codecs is bitwise identical to the output of CPU codecs.

Calls return immediately, and their work is stream-ordered. Memory is allocated and kernels are compiled only in the
first call with a given operation and size.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpcbench.codecs.base import Codec, match_residual, match_wire
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.device import Build, CallMemory, Device, View, cuda
from hpcbench.codecs.library import FAMILIES
from hpcbench.codecs.sequence import Sequence, sequence_of
from hpcbench.codecs.types import SHORT, Type

_SEED = 2**64 - 1


class Length:
    """Encoded size in bytes, available when the stream has completed the call. ``int(length)`` blocks until then.

    Raises
    ------
    ValueError
        Raised by ``int`` if the decoded bytes are not a valid encoding.
    """

    def __init__(self, memory: CallMemory, give_back: Callable[[CallMemory], None], complaint: str) -> None:
        self._memory: CallMemory | None = memory
        self._give_back = give_back
        self._complaint = complaint
        self._value = 0
        self._fault = 0

    def __int__(self) -> int:
        if self._memory is not None:
            self._value, self._fault = self._memory.wait()
            self._release()
        if self._fault:
            raise ValueError(self._complaint)
        return self._value

    __index__ = __int__

    def __del__(self) -> None:
        self._release()

    def _release(self) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            self._give_back(memory)


class BFloat16:
    """A bfloat16 view of 16-bit words on a GPU, for libraries that lack this dtype. No data is copied.

    Parameters
    ----------
    words
        A uint16 or int16 array with ``__cuda_array_interface__``.

    Raises
    ------
    TypeError
        The array has a different dtype.
    """

    def __init__(self, words: Any) -> None:
        interface = dict(words.__cuda_array_interface__)
        if np.dtype(interface["typestr"]) not in (np.uint16, np.int16):
            raise TypeError(f"bfloat16 values must be passed as uint16 or int16, not {interface['typestr']}")
        self.__cuda_array_interface__ = interface | {"typestr": "<V2"}
        self.words = words


class CudaCodec:
    """GPU kernels of a codec.

    Arrays are objects with ``__cuda_array_interface__`` or ``__dlpack__``, such as CuPy arrays and torch tensors
    (including bfloat16). They must be contiguous vectors with any alignment. The caller must synchronize with other
    streams that write or read the arrays.

    Parameters
    ----------
    codec
        A CPU codec that has GPU kernels.
    device
        Device that runs the kernels. If None, use CuPy's current device.

    Raises
    ------
    TypeError
        The codec has no GPU kernels.
    ImportError, RuntimeError
        CuPy or a GPU is missing.
    """

    def __init__(self, codec: Codec, device: Device | None = None) -> None:
        if not isinstance(codec, Compiled):
            raise TypeError(f"{codec.name}: has no kernels for a GPU")
        self.name = codec.name
        self.lossless = codec.lossless
        self.fixed_size = codec.fixed_size
        self._codec = codec
        self._device = device or cuda()
        self._sequence: Sequence = sequence_of(codec.family)
        self._free: dict[int, list[CallMemory]] = {}

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the encoded size of `n` values in bytes.

        The size is exact if `fixed_size` is set, otherwise it is the maximum.
        """
        return self._codec.wire_bytes(n, dtype)

    def encode(
        self,
        x: Any,
        out: Any,
        *,
        residual: Any = None,
        seed: int = 0,
        stream: Any = None,
    ) -> int | Length:
        """Encode `x`, or ``x + residual``, to the start of `out`. See `Codec.encode`.

        Parameters
        ----------
        stream
            CuPy stream, torch stream, or handle. If None, use the current stream of the library that owns `x`.

        Returns
        -------
        int or Length
            Number of bytes written. If the codec is not `fixed_size`, a `Length` is returned instead.

        Raises
        ------
        TypeError, ValueError
            As in `Codec.encode`.
        """
        handle = self._device.stream(stream, x)
        values = self._view(x, handle)
        kind = self._codec.check_type(values.dtype)
        n = values.nbytes if kind is Type.BYTES else values.size
        wire = self._wire(out, handle, at_least=self.wire_bytes(values.size, values.dtype), writeable=True)
        residual_pointer = 0
        if residual is not None:
            error = self._view(residual, handle, writeable=True)
            match_residual(self.name, error, values)
            residual_pointer = error.pointer
        arguments = values.pointer, n, wire.pointer, residual_pointer, seed & _SEED
        exact = self.wire_bytes(values.size, values.dtype) if self.fixed_size else None
        return self._run("encode", (kind, kind), n, arguments, handle, exact, "")

    def decode(
        self, wire: Any, out: Any, *, dtype: np.dtype[Any] | None = None, accumulate: bool = False, stream: Any = None
    ) -> int | Length:
        """Decode `wire` into `out`, or add the decoded values to `out`. See `Codec.decode`.

        Parameters
        ----------
        dtype
            Dtype of the encoded values. By default, it is the dtype of `out`.
        stream
            As in `encode`. If None, use the current stream of the library that owns `out`.

        Returns
        -------
        int or Length
            Number of bytes read. If the bytes are malformed, ``int`` of a `Length` raises ValueError, and `out` may
            have been partially overwritten.

        Raises
        ------
        TypeError, ValueError
            An error of `Codec.decode` that can be detected immediately.
        """
        handle = self._device.stream(stream, out)
        values = self._view(out, handle, writeable=True)
        coded = self._wire(wire, handle)
        kind, target = self._codec.check_type(dtype or values.dtype), self._codec.check_type(values.dtype)
        if kind is not target and (kind not in SHORT or target not in SHORT):
            raise TypeError(f"{self.name}: values of {dtype} cannot be decoded to {values.dtype}")
        if accumulate and target is Type.BYTES:
            raise TypeError(
                f"{self.name}: on a GPU, decoded values can be added to float32, float16, bfloat16 or float64, "
                f"but not to {values.dtype}: decode first, then add"
            )
        n = values.nbytes if target is Type.BYTES else values.size
        complaint = f"{self.name}: {coded.size} bytes do not encode {values.size} values of {dtype or values.dtype}"
        if self.fixed_size and coded.size != self.wire_bytes(values.size, dtype or values.dtype):
            raise ValueError(complaint)
        operation = "decode_add" if accumulate else "decode"
        if self._sequence.state is None:
            return self._run(operation, (kind, target), n, (coded.pointer, n, values.pointer), handle, coded.size, "")
        arguments = coded.pointer, coded.size, n, values.pointer
        return self._run(operation, (kind, target), n, arguments, handle, None, complaint)

    def decode_add_encode(self, wire: Any, local: Any, out: Any, *, seed: int = 0, stream: Any = None) -> int | Length:
        """Encode the sum of `local` and the values in `wire`. See `Codec.decode_add_encode`.

        Parameters
        ----------
        stream
            As in `encode`. If None, use the current stream of the library that owns `local`.

        Returns
        -------
        int or Length
            Number of bytes written.

        Raises
        ------
        TypeError, ValueError
            As in `decode` and `encode`.
        """
        handle = self._device.stream(stream, local)
        values = self._view(local, handle)
        kind = self._codec.check_type(values.dtype)
        if kind not in SHORT:
            raise TypeError(
                f"{self.name}: encoded values can be added to float32, float16 or bfloat16, but not to {values.dtype}"
            )
        n, room = values.size, self.wire_bytes(values.size, values.dtype)
        coded, to = self._wire(wire, handle), self._wire(out, handle, at_least=room, writeable=True)
        complaint = f"{self.name}: {coded.size} bytes do not encode {n} values of {values.dtype}"
        if self.fixed_size and coded.size != room:
            raise ValueError(complaint)
        sum_arguments = values.pointer, n, to.pointer, seed & _SEED
        if self._sequence.state is None:
            return self._run("decode_add_encode", (kind, kind), n, (coded.pointer, *sum_arguments), handle, room, "")
        arguments = coded.pointer, coded.size, *sum_arguments
        return self._run("decode_add_encode", (kind, kind), n, arguments, handle, None, complaint)

    def _view(self, x: Any, stream: int, *, writeable: bool = False) -> View:
        view = self._device.view(self.name, x, stream)
        if writeable and not view.writeable:
            raise ValueError(f"{self.name}: the array to write to is read-only")
        return view

    def _wire(self, wire: Any, stream: int, *, at_least: int = 0, writeable: bool = False) -> View:
        view = self._view(wire, stream, writeable=writeable)
        match_wire(self.name, view, at_least)
        return view

    def _run(
        self,
        operation: str,
        types: tuple[Type, Type],
        n: int,
        arguments: tuple[int, ...],
        stream: int,
        exact: int | None,
        complaint: str,
    ) -> int | Length:
        """Launch the kernels of an operation.

        `types` are the encoded and the decoded dtype. `exact` is the number of bytes, if known.
        """
        sequence, param = self._sequence, self._codec.param(n)
        blocks = self._device.blocks(n * types[0].size, sequence.block_bytes)
        family = FAMILIES.index(self._codec.family)
        if sequence.state is None:
            assert exact is not None, "only kernels with a state determine the encoded length"
            build = Build(sequence.source, family, param, *types)
            for kernel in sequence.kernels[operation]:
                self._device.launch(build, kernel, blocks, arguments, stream)
            return exact
        zeros = sequence.state(n, types[0], param)
        sums = (n + 1) // 2 if sequence.sums and operation == "decode_add_encode" else 0
        memory = self._take(zeros + sums)
        memory.begin(stream, zeros)
        build = Build(sequence.source, family, 0, *types)
        for kernel in sequence.kernels[operation]:
            self._device.launch(build, kernel, blocks, (*arguments, param, memory.pointer), stream)
        memory.end(stream)
        if exact is not None:
            self._give_back(memory)
            return exact
        return Length(memory, self._give_back, complaint)

    def _take(self, word_count: int) -> CallMemory:
        try:
            return self._free[word_count].pop()
        except (KeyError, IndexError):
            return self._device.memory(word_count)

    def _give_back(self, memory: CallMemory) -> None:
        self._free.setdefault(memory.word_count, []).append(memory)
