"""Compressors of other projects, with the interface that the benchmarks use for codecs of hpcbench.

numcodecs is excluded because it wraps the same libraries.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcbench.bench.timing import Call
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16, Array

ZFP_RATES = (4, 8, 12, 16, 24, 32)
BLOCK = 256
"""Number of values that share a scale in the compared int8 codec."""
FEW_BITS = (
    *("int4:32", "int4:32/256", "int4:16/256", "int4:32/256:nonuniform", "int4:32/256:stochastic"),
    *("int3:32/256", "int2:16/256", "rotate64+int4:32/256"),
    *("mxfp8:e4m3", "mxfp6:e2m3", "mxfp4:rceil", "nvfp4"),
)
"""Codecs with fewer than 8 bits. These codecs are compared with int8."""


@dataclass(frozen=True)
class Coder:
    """A compressor that was made for given values."""

    calls: Mapping[str, Call]
    """``encode``, ``decode`` and, if supported, ``decode_add``."""
    wire_bytes: int
    check: Call
    """Decoder that writes to the array that was passed when the compressor was made."""


Make = Callable[[Array, Array, int], Coder]
"""Function that makes a compressor, given values of shape (n,), an output array, and a number of threads."""


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    name: str
    make: Make | None
    """None if the required package is not installed."""
    rival: str = ""
    """Name of the row with which this row of hpcbench is compared."""
    threads: bool = False
    """Whether the compressor is multi-threaded. For other compressors, the values are divided among the threads."""


def ours(name: str, build: Kernels, rival: str) -> Entry:
    """Measure a codec of hpcbench."""

    def make(x: Array, out: Array, threads: int) -> Coder:
        codec = get_codec(name, build)
        room = np.empty(codec.wire_bytes(x.size, x.dtype), np.uint8)
        wire = room[: codec.encode(x, room)].copy()
        total = np.zeros_like(x)
        calls: dict[str, Call] = {
            "encode": lambda: codec.encode(x, room),
            "decode": lambda: codec.decode(wire, out),
            "decode_add": lambda: codec.decode(wire, total, accumulate=True),
        }
        return Coder(calls, wire.size, calls["decode"])

    return Entry(name, make, rival)


def memcpy(x: Array, out: Array, threads: int) -> Coder:
    """Copy the values. A codec that reads and writes the values cannot be much faster."""
    copy: Call = lambda: np.copyto(out, x)  # noqa: E731
    return Coder({"encode": copy, "decode": copy, "decode_add": copy}, x.nbytes, copy)


def entries(dtype: np.dtype[Any], build: Kernels) -> list[Entry]:
    """List the rows of a table for values of one dtype: rivals first, then hpcbench, with rows of missing packages.

    Parameters
    ----------
    dtype
        float32 or bfloat16.
    build
        Build of hpcbench's kernels.
    """
    rows_of_peers: list[Entry] = [Entry("memcpy", memcpy)]
    for name, package in PACKAGES.items():
        rows = (*(package.float32 if dtype == np.float32 else ()), *package.rows)
        makers: Iterable[Make | None]
        try:
            makers = package.makers(importlib.import_module(name), dtype)
        except ImportError:
            makers = [None] * len(rows)
        rows_of_peers += [Entry(row, make, threads=package.threads) for row, make in zip(rows, makers, strict=True)]
    rivals = {
        f"int8:{BLOCK}": "torch int8",
        "mpc": "blosc2 bitshuffle+lz4",
        "xpk": "pcodec",
        **dict.fromkeys(reversed(FEW_BITS), f"int8:{BLOCK}"),
    }
    if dtype == np.float32:
        rivals |= {"fp16": "torch cast fp16", "bf16": "torch cast bf16"}
        rivals |= {f"zfp:{rate}": f"zfpy {rate}" for rate in ZFP_RATES}
    names = {entry.name for entry in rows_of_peers if entry.make} | {f"int8:{BLOCK}"}
    for name, rival in rivals.items():
        entry = ours(name, build, rival if rival in names else "")
        place = next((k + 1 for k, other in enumerate(rows_of_peers) if other.name == rival), len(rows_of_peers))
        rows_of_peers.insert(place, entry)
    return rows_of_peers


def _torch(torch: Any, dtype: np.dtype[Any]) -> Iterator[Make]:
    torch.set_num_threads(1)  # Threads are assigned parts of the values.

    def tensor(x: Array) -> Any:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype == BFLOAT16 else torch.from_numpy(x)

    def cast(kind: Any) -> Make:
        def make(x: Array, out: Array, threads: int) -> Coder:
            values, decoded = tensor(x), tensor(out)
            wire = values.to(kind)
            decode: Call = lambda: decoded.copy_(wire)  # noqa: E731
            return Coder({"encode": lambda: wire.copy_(values), "decode": decode}, 2 * x.size, decode)

        return make

    def int8(x: Array, out: Array, threads: int) -> Coder:
        """Block quantization as usually written in PyTorch, in eager mode."""
        blocks_end = x.size // BLOCK * BLOCK
        values, decoded = tensor(x[:blocks_end]).view(-1, BLOCK), tensor(out[:blocks_end]).view(-1, BLOCK)
        total = torch.zeros_like(values)
        out[blocks_end:] = x[blocks_end:]

        def encode() -> Any:
            scale = (values.abs().amax(1, keepdim=True).float() / 127).clamp_(min=1e-38)
            return (values / scale).round_().to(torch.int8), scale

        q, scale = encode()
        calls: dict[str, Call] = {
            "encode": encode,
            "decode": lambda: torch.mul(q, scale, out=decoded),
            "decode_add": lambda: total.add_(q * scale),
        }
        return Coder(calls, q.numel() + 4 * scale.numel() + x[blocks_end:].nbytes, calls["decode"])

    if dtype == np.float32:
        yield cast(torch.float16)
        yield cast(torch.bfloat16)
    yield int8


def _zfpy(zfpy: Any, dtype: np.dtype[Any]) -> Iterator[Make]:
    def at(rate: int) -> Make:
        def make(x: Array, out: Array, threads: int) -> Coder:
            wire: bytes = zfpy.compress_numpy(x, rate=rate, write_header=False)
            kind = zfpy.dtype_to_ztype(x.dtype)
            calls: dict[str, Call] = {
                "encode": lambda: zfpy.compress_numpy(x, rate=rate, write_header=False),
                "decode": lambda: zfpy._decompress(wire, kind, x.shape, out=out, rate=rate),
            }
            return Coder(calls, len(wire), calls["decode"])

        return make

    if dtype == np.float32:
        for rate in ZFP_RATES:
            yield at(rate)


def _blosc2(blosc2: Any, dtype: np.dtype[Any]) -> Iterator[Make]:
    def with_(codec: Any, transform: Any) -> Make:
        def make(x: Array, out: Array, threads: int) -> Coder:
            data = x.view(np.uint8)
            options = {"clevel": 1, "typesize": dtype.itemsize, "filters": [transform], "filters_meta": [0]}

            def encode() -> Any:
                return blosc2.compress2(data, codec=codec, nthreads=threads, **options)

            wire, target = encode(), out.view(np.uint8)
            decode: Call = lambda: blosc2.decompress2(wire, dst=target, nthreads=threads)  # noqa: E731
            return Coder({"encode": encode, "decode": decode}, len(wire), decode)

        return make

    yield with_(blosc2.Codec.LZ4, blosc2.Filter.BITSHUFFLE)
    yield with_(blosc2.Codec.ZSTD, blosc2.Filter.SHUFFLE)


def _pcodec(pcodec: Any, dtype: np.dtype[Any]) -> Iterator[Make]:
    def at(level: int) -> Make:
        def make(x: Array, out: Array, threads: int) -> Coder:
            """bfloat16 as 16-bit integers, because the compressor does not support bfloat16."""
            standalone = importlib.import_module("pcodec.standalone")
            kind = np.uint16 if x.dtype == BFLOAT16 else x.dtype
            values, target, config = x.view(kind), out.view(kind), pcodec.ChunkConfig(compression_level=level)
            wire: bytes = standalone.simple_compress(values, config)
            calls: dict[str, Call] = {
                "encode": lambda: standalone.simple_compress(values, config),
                "decode": lambda: standalone.simple_decompress_into(wire, target),
            }
            return Coder(calls, len(wire), calls["decode"])

        return make

    yield at(pcodec.DEFAULT_COMPRESSION_LEVEL)
    yield at(0)


def _bytes(compress: Callable[[Any], bytes], decompress: Callable[[bytes], bytes]) -> Make:
    """Return a compressor of bytes that allocates new memory at each call."""

    def make(x: Array, out: Array, threads: int) -> Coder:
        data: Any = x.view(np.uint8).data
        wire = compress(data)

        def check() -> None:
            out.view(np.uint8)[:] = np.frombuffer(decompress(wire), np.uint8)

        return Coder({"encode": lambda: compress(data), "decode": lambda: decompress(wire)}, len(wire), check)

    return make


def _zstandard(zstandard: Any, dtype: np.dtype[Any]) -> Iterator[Make]:
    yield _bytes(  # One object per thread, because threads must not share an object.
        lambda data: zstandard.ZstdCompressor(level=1).compress(data),
        lambda wire: zstandard.ZstdDecompressor().decompress(wire),
    )


def _lz4(frame: Any, dtype: np.dtype[Any]) -> Iterator[Make]:
    yield _bytes(frame.compress, frame.decompress)


@dataclass(frozen=True)
class Package:
    """Compressors of a package, and their rows, which do not depend on importing the package."""

    makers: Callable[[Any, np.dtype[Any]], Iterator[Make]]
    """Function that yields, for a module and a dtype, the functions that make compressors, in the order of the rows."""
    rows: tuple[str, ...]
    float32: tuple[str, ...] = ()
    """Rows for float32 only, which precede the other rows."""
    threads: bool = False
    """As in `Entry`."""


PACKAGES = {
    "torch": Package(_torch, ("torch int8",), ("torch cast fp16", "torch cast bf16")),
    "zfpy": Package(_zfpy, (), tuple(f"zfpy {rate}" for rate in ZFP_RATES)),
    "blosc2": Package(_blosc2, ("blosc2 bitshuffle+lz4", "blosc2 shuffle+zstd"), threads=True),
    "pcodec": Package(_pcodec, ("pcodec", "pcodec level 0")),
    "zstandard": Package(_zstandard, ("zstd 1",)),
    "lz4.frame": Package(_lz4, ("lz4",)),
}
"""Packages, keyed by the imported module."""
