"""Codecs as PyTorch operators: `torch.ops.hpcbench.encode`, `decode` and `add_encode`.

Operators run on the caller's current stream and never wait for a GPU. On CPUs, they call the codec. On GPUs, they
launch the kernels in kernels/gpu through CuPy. The fake implementations, for `torch.compile` and fake tensors, only
check sizes. An operator of `torch.library.Library` costs about 10 us per call, and an operator of
`torch.library.custom_op` about 36 us (pytorch#139500).
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hpcbench.codecs.base import Codec
from hpcbench.codecs.convert import convert
from hpcbench.codecs.cuda import CudaCodec
from hpcbench.codecs.device import Device, cuda
from hpcbench.codecs.identity import Identity
from hpcbench.codecs.registry import get_codec
from hpcbench.comm.rounding import narrow, widen
from hpcbench.programs.tensors import DTYPES, array

_LIBRARY = torch.library.Library("hpcbench", "DEF")  # type: ignore[no-untyped-call]
_SCHEMAS = (
    "encode(Tensor values, Tensor(a!) wire, Tensor(b!)? residual, str codec, ScalarType sent, int seed) -> ()",
    "decode(Tensor wire, Tensor(a!) out, str codec, ScalarType sent, bool accumulate) -> ()",
    "add_encode(Tensor wire, Tensor local, Tensor(a!) out, str codec, int seed) -> ()",
)
codec_of = functools.cache(get_codec)
"""Return the codec with a given name. Codecs are cached."""


def count_wire_bytes(codec: str, n: int, sent: torch.dtype) -> int:
    """Return the encoded size in bytes of `n` values of dtype `sent`."""
    return codec_of(codec).wire_bytes(n, DTYPES[sent])


class HostKernels:
    """The operators on host tensors."""

    def encode(
        self, values: torch.Tensor, wire: torch.Tensor, residual: torch.Tensor | None, codec: str, sent: Any, seed: int
    ) -> None:
        """Round values to the dtype in which they are sent, and encode them. See `Codec.encode` for the residual."""
        source, kind = array(values), DTYPES[sent]
        lacked = None if residual is None else array(residual)
        if source.dtype != kind:
            rounded = np.empty(source.size, kind)
            narrow(source, rounded, lacked)
            source = rounded
        codec_of(codec).encode(source, wire.numpy(), residual=lacked, seed=seed)

    def decode(self, wire: torch.Tensor, out: torch.Tensor, codec: str, sent: Any, accumulate: bool) -> None:
        """Decode a message into `out`, or add it to `out`. Sums are rounded to `sent` first."""
        target, kind = array(out), DTYPES[sent]
        if target.dtype == kind:
            codec_of(codec).decode(wire.numpy(), target, accumulate=accumulate)
            return
        values = np.empty(target.size, kind)
        codec_of(codec).decode(wire.numpy(), values)
        widen(values, target, accumulate=accumulate)

    def add_encode(self, wire: torch.Tensor, local: torch.Tensor, out: torch.Tensor, codec: str, seed: int) -> None:
        """Encode the sum of `local` and a message in one kernel."""
        codec_of(codec).decode_add_encode(wire.numpy(), array(local), out.numpy(), seed=seed)


class DeviceKernels:
    """The operators on tensors of one GPU. The operators launch kernels and return immediately.

    Parameters
    ----------
    device
        Device that runs the kernels.
    stream_of
        Function that returns the handle of the current stream for a tensor.
    seen
        Function that returns the device's view of a tensor.
    """

    def __init__(
        self,
        device: Device,
        stream_of: Callable[[torch.Tensor], int],
        seen: Callable[[torch.Tensor], Any] = lambda tensor: tensor,
    ) -> None:
        self._device, self._stream_of, self._seen = device, stream_of, seen
        self._codecs: dict[str, CudaCodec] = {}

    def encode(
        self, values: torch.Tensor, wire: torch.Tensor, residual: torch.Tensor | None, codec: str, sent: Any, seed: int
    ) -> None:
        """Launch the kernels that round and encode values."""
        stream = self._stream_of(values)
        if values.dtype != sent:
            rounded = torch.empty_like(values, dtype=sent)
            views = (self._view(rounded, stream), self._view(values, stream))
            convert(self._device, *views, stream, residual=None if residual is None else self._view(residual, stream))
            values = rounded
        if isinstance(codec_of(codec), Identity):
            _copy_to_wire(values, wire, residual)
            return
        lacked = None if residual is None else self._seen(residual)
        self._codec(codec).encode(self._seen(values), self._seen(wire), residual=lacked, seed=seed, stream=stream)

    def decode(self, wire: torch.Tensor, out: torch.Tensor, codec: str, sent: Any, accumulate: bool) -> None:
        """Launch the kernels that decode a message into `out`, or add it to `out`."""
        stream = self._stream_of(out)
        direct = out.dtype == sent
        identity = isinstance(codec_of(codec), Identity)
        values = out if direct and not (identity and accumulate) else torch.empty_like(out, dtype=sent)
        if identity:
            values.view(torch.uint8).copy_(wire)
        else:
            adds = accumulate and direct
            self._codec(codec).decode(self._seen(wire), self._seen(values), accumulate=adds, stream=stream)
        if values is out:
            return
        if direct:
            out.add_(values)
        else:
            views = (self._view(out, stream), self._view(values, stream))
            convert(self._device, *views, stream, accumulate=accumulate)

    def add_encode(self, wire: torch.Tensor, local: torch.Tensor, out: torch.Tensor, codec: str, seed: int) -> None:
        """Launch the kernel that encodes the sum of `local` and a message."""
        if isinstance(codec_of(codec), Identity):
            total = torch.empty_like(local)
            total.view(torch.uint8).copy_(wire)
            _copy_to_wire(total.add_(local), out, None)
            return
        seen = self._seen(wire), self._seen(local), self._seen(out)
        self._codec(codec).decode_add_encode(*seen, seed=seed, stream=self._stream_of(local))

    def _codec(self, name: str) -> CudaCodec:
        if name not in self._codecs:
            self._codecs[name] = CudaCodec(codec_of(name), self._device)
        return self._codecs[name]

    def _view(self, tensor: torch.Tensor, stream: int) -> Any:
        return self._device.view("collective", self._seen(tensor), stream)


def _copy_to_wire(values: torch.Tensor, wire: torch.Tensor, residual: torch.Tensor | None) -> None:
    """Write unencoded values. With a residual, write the sum and store its finite rounding errors in the residual."""
    if residual is not None:
        total = values.float() + residual
        values = total.to(values.dtype)
        lack = total - values.float()
        residual.copy_(torch.where(torch.isfinite(lack), lack, 0.0))
    wire[: values.numel() * values.element_size()].copy_(values.view(torch.uint8))


def has_kernels(codec: Codec) -> bool:
    """Return whether a codec has a fixed encoded size and GPU kernels, and so supports these operators on a GPU."""
    from hpcbench.codecs.compiled import Compiled

    return codec.fixed_size and isinstance(codec, Identity | Compiled)


@functools.cache
def device_kernels(number: int) -> DeviceKernels:
    """Return the operators for a GPU.

    Raises
    ------
    RuntimeError
        CuPy is missing or cannot compile for this GPU. All ranks need CuPy.
    """
    with torch.cuda.device(number):
        try:
            device = cuda()
        except (ImportError, RuntimeError) as error:
            raise RuntimeError(
                f"hpcbench: this rank cannot encode calls on its GPU: {error} (in the environment of the program)"
            ) from error
    return DeviceKernels(device, lambda tensor: int(torch.cuda.current_stream(tensor.device).cuda_stream))


def _launch(name: str) -> Callable[..., None]:
    """Return the implementation of an operator for GPU tensors."""

    def operator(first: torch.Tensor, *rest: Any) -> None:
        with torch.cuda.device(first.device):
            getattr(device_kernels(first.device.index or 0), name)(first, *rest)

    return operator


def _require(fits: bool, message: str) -> None:
    if not fits:
        raise ValueError(f"hpcbench operators: {message}")


def _fake_encode(values: Any, wire: Any, residual: Any, codec: str, sent: Any, seed: int) -> None:
    room = count_wire_bytes(codec, values.numel(), sent)
    _require(
        wire.dtype == torch.uint8 and wire.numel() >= room,
        f"{codec} needs {room} bytes, but the wire has {wire.numel()}",
    )
    _require(residual is None or residual.numel() == values.numel(), "the residual and the values differ in size")


def _fake_decode(wire: Any, out: Any, codec: str, sent: Any, accumulate: bool) -> None:
    nbytes = count_wire_bytes(codec, out.numel(), sent)
    _require(wire.numel() == nbytes, f"{out.numel()} values of {codec} have {nbytes} bytes, not {wire.numel()}")


def _fake_add_encode(wire: Any, local: Any, out: Any, codec: str, seed: int) -> None:
    _fake_decode(wire, local, codec, local.dtype, True)
    _fake_encode(local, out, None, codec, local.dtype, seed)


for _schema in _SCHEMAS:
    _LIBRARY.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    _name = _schema.partition("(")[0]
    _LIBRARY.impl(_name, getattr(HostKernels(), _name), "CPU")  # type: ignore[no-untyped-call]
    _LIBRARY.impl(_name, _launch(_name), "CUDA")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"hpcbench::{_name}", globals()[f"_fake_{_name}"], lib=_LIBRARY)
encode, decode, add_encode = (
    getattr(torch.ops.hpcbench, _name).default for _name in ("encode", "decode", "add_encode")
)
"""The operators as functions."""
