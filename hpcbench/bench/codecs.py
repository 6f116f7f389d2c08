"""Size, speed and error of codecs on given values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hpcbench.bench.device import BenchDevice
from hpcbench.bench.fidelity import classify_non_finite, compute_errors
from hpcbench.bench.timing import Subject, Times, time_in_turns
from hpcbench.codecs.base import Codec
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import Array, Bytes
from hpcbench.errors import UserError

DEFAULT = (
    "none",
    "fp16",
    "bf16",
    "fp8e4m3",
    "int8:256",
    "int4:32",
    "int4:32/256",
    "int3:32/256",
    "int2:16/256",
    "mxfp8:e4m3",
    "mxfp6:e2m3",
    "mxfp4",
    "nvfp4",
    "sign:1024",
    "zfp:8",
    "zfp:16",
    "zfp:24",
    "mpc",
    "xpk",
    "topk:0.01",
    "2:4",
)
"""Codecs that are measured by default: some of every family that is suitable for arbitrary values."""
OPERATIONS = ("encode", "decode", "decode_add", "decode_add_encode")
"""Timed operations. The last operation is a hop of a reduction: decode, add the local values, and encode the sum."""
_PROBE = 4096
"""Number of values in the test of NaN and infinities, which are placed in different chunks of 1024 values."""


@dataclass(frozen=True)
class CodecThroughput:
    """Speeds in GB/s (1e9 bytes per second), relative to the uncompressed size."""

    best: float
    median: float

    @classmethod
    def of(cls, times: Times, nbytes: int) -> "CodecThroughput":
        """Return the speed of processing `nbytes` bytes."""
        return cls(nbytes / times.best / 1e9, nbytes / times.median / 1e9)


@dataclass(frozen=True)
class CodecRow:
    """Measurements of one codec."""

    codec: str
    lossless: bool
    wire_bytes: int
    ratio: float
    """Bytes of the values divided by `wire_bytes`."""
    bits_per_value: float
    speeds: dict[str, CodecThroughput]
    """Speed of each operation."""
    relative_rmse: float
    max_error: float
    error_bound: float | None
    """Guaranteed bound for `max_error`, or None without a guarantee."""
    non_finite: str
    """Treatment of NaN and infinity: ``kept``, ``as NaN`` or ``lost``."""

    @property
    def broken(self) -> bool:
        """Whether the error exceeds the bound."""
        return self.error_bound is not None and not self.max_error <= self.error_bound


@dataclass(frozen=True)
class Result:
    """Measurements of all codecs on the same values."""

    memcpy: CodecThroughput
    """Throughput of copying the values, an approximate upper bound for codecs."""
    rows: tuple[CodecRow, ...]


def measure(
    names: Sequence[str],
    x: Array,
    device: BenchDevice,
    repeats: int,
    progress: Callable[[int, int, str], object] = lambda done, total, name: None,
) -> Result:
    """Measure codecs in interleaved turns on the same values.

    Parameters
    ----------
    names
        Names of the codecs, written as in a study.
    x
        Values in host memory, shape (n,) with n >= 1.
    device
        Device that the codecs run on.
    repeats
        Number of timed repeats.
    progress
        Progress callback, as in `time_in_turns`.

    Raises
    ------
    UserError
        A codec does not exist or does not accept these values.
    """
    codecs = [_open_codec(name, x, device) for name in names]
    here = device.put(x)
    room = max((codec.wire_bytes(x.size, x.dtype) for codec in codecs), default=0)
    scratch = _Scratch(device.empty(x.size, x.dtype), device.put(np.zeros_like(x)), device.empty(room, np.dtype("u1")))
    subjects = [Subject("memcpy", {"copy": lambda: device.copy(scratch.values, here)})]
    rows = []
    with np.errstate(all="ignore"):  # The table shows overflows as errors.
        for name, codec in zip(names, codecs, strict=True):
            try:
                subject, row = _prepare(codec, get_codec(name).error_bound(x), x, here, device, scratch)
            except (TypeError, ValueError) as error:
                raise UserError(f"codec {codec.name}: {error}") from None
            subjects.append(subject)
            rows.append(row)
        copy, *times = time_in_turns(subjects, repeats, wait=device.wait, progress=progress)
    for row, calls in zip(rows, times, strict=True):
        row.speeds.update({operation: CodecThroughput.of(calls[operation], x.nbytes) for operation in OPERATIONS})
    return Result(CodecThroughput.of(copy["copy"], x.nbytes), tuple(rows))


@dataclass(frozen=True)
class _Scratch:
    """Scratch memory that the codecs reuse."""

    values: Array
    total: Array
    wire: Bytes


def _open_codec(name: str, x: Array, device: BenchDevice) -> Codec:
    try:
        codec = device.codec(name)
        codec.wire_bytes(x.size, x.dtype)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        message = str(error)
        raise UserError(message if name in message else f"codec {name}: {message}") from None
    return codec


def _prepare(
    codec: Codec, bound: float | None, x: Array, here: Array, device: BenchDevice, scratch: _Scratch
) -> tuple[Subject, CodecRow]:
    """Return the calls to time, and a result row in which the speeds are still missing."""
    used = int(codec.encode(here, scratch.wire))  # On a GPU this synchronizes to read the length.
    wire = device.empty(used, np.dtype("u1"))
    device.copy(wire, scratch.wire[:used])
    codec.decode(wire, scratch.values)
    difference = compute_errors(x, device.get(scratch.values))
    calls = {
        "encode": lambda: codec.encode(here, scratch.wire),
        "decode": lambda: codec.decode(wire, scratch.values),
        "decode_add": lambda: codec.decode(wire, scratch.total, accumulate=True),
        "decode_add_encode": lambda: codec.decode_add_encode(wire, here, scratch.wire),
    }
    row = CodecRow(
        codec.name,
        codec.lossless,
        used,
        x.nbytes / used if used else float("inf"),
        8 * used / x.size,
        {},
        difference.relative_rmse,
        difference.max_error,
        bound,
        _classify_survival(codec, x, device),
    )
    return Subject(codec.name, calls), row


def _classify_survival(codec: Codec, x: Array, device: BenchDevice) -> str:
    probe = np.resize(x, _PROBE)
    probe[[100, 1500, 3000]] = np.nan, np.inf, -np.inf
    here, decoded = device.put(probe), device.empty(_PROBE, x.dtype)
    wire = device.empty(codec.wire_bytes(_PROBE, x.dtype), np.dtype("u1"))
    codec.decode(wire[: int(codec.encode(here, wire))], decoded)
    return classify_non_finite(probe, device.get(decoded))
