"""Other installed GPU compressors, with the calls that codecs_gpu.py times."""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

Call = Callable[[], Any]


@dataclass
class Peer:
    """A compressor of `x`, a float32 array on the device."""

    name: str
    wire_bytes: int
    encode: Call
    decode: Call
    result: Call
    """Call that returns the result of `decode`, an array on the device."""
    add: Call | None = None
    """Call that decodes, and adds to the existing values."""
    fused: Call | None = None
    """Decode, add, encode."""


def torch_peers(x: Any, block: int = 256) -> Iterator[Peer]:
    """Casts, and 8-bit integers with one scale per block, in eager and compiled PyTorch."""
    torch = import_module("torch")
    values = torch.as_tensor(x, device="cuda")
    local, total = values.clone(), torch.empty_like(values)

    def quantize(v: Any) -> tuple[Any, Any]:
        rows = v.view(-1, block)
        scale = rows.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / 127
        return torch.round(rows / scale).to(torch.int8), scale

    def dequantize(coded: tuple[Any, Any]) -> Any:
        return (coded[0].float() * coded[1]).view(-1)

    ways: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], float]] = {
        "cast fp16": (lambda v: v.half(), lambda coded: coded.float(), 2.0),
        "cast bf16": (lambda v: v.bfloat16(), lambda coded: coded.float(), 2.0),
    }
    if values.numel() % block == 0:
        ways[f"int8 blocks of {block}"] = quantize, dequantize, 1.0 + 4.0 / block
    for compiled in (False, True):
        for name, (encode, decode, bytes_each) in ways.items():
            # One kernel where the compiler can fuse, three without hints.
            functions = [
                encode,
                decode,
                lambda coded, onto, decode=decode: onto.add_(decode(coded)),
                lambda coded, own, encode=encode, decode=decode: encode(decode(coded) + own),
            ]
            if compiled:
                functions = [torch.compile(f, dynamic=False) for f in functions]
            to_wire, to_values, add, fused = functions
            coded = to_wire(values)
            yield Peer(
                f"torch {'compiled' if compiled else 'eager'} {name}",
                int(values.numel() * bytes_each),
                lambda f=to_wire: f(values),
                lambda f=to_values, coded=coded: f(coded),
                lambda f=to_values, coded=coded: f(coded),
                lambda f=add, coded=coded: f(coded, total),
                lambda f=fused, coded=coded: f(coded, local),
            )


def cupy_peers(x: Any) -> Iterator[Peer]:
    """CuPy's cast to float16, and sums to which the result of the cast is added."""
    cupy = import_module("cupy")
    half, out, total = x.astype(cupy.float16), cupy.empty_like(x), cupy.zeros_like(x)
    yield Peer(
        "cupy cast fp16",
        half.nbytes,
        lambda: cupy.copyto(half, x, casting="unsafe"),
        lambda: cupy.copyto(out, half),
        lambda: out,
        lambda: cupy.add(total, half, out=total),
    )


def nvcomp_peers(x: Any, stream: int) -> Iterator[Peer]:
    """Yield NVIDIA's lossless compressors, configured for float32."""
    nvcomp = import_module("nvidia.nvcomp")
    source = nvcomp.as_array(x)
    for name, kind in (("ANS", "|u1"), ("Bitcomp", "<u4"), ("Cascaded", "<u4"), ("LZ4", "|u1")):
        codec = nvcomp.Codec(algorithm=name, data_type=kind, cuda_stream=stream)
        coded = codec.encode(source)
        yield Peer(
            f"nvCOMP {name}",
            int(coded.buffer_size),
            lambda codec=codec: codec.encode(source),
            lambda codec=codec, coded=coded: codec.decode(coded, "<f4"),
            lambda codec=codec, coded=coded: codec.decode(coded, "<f4"),
        )


class _Zfp:
    """One-dimensional fixed-rate mode of libzfp on CUDA, through its C interface."""

    CUDA, FLOAT = 2, 3

    def __init__(self, path: Path) -> None:
        self.library = library = ctypes.CDLL(str(path))
        for name in ("zfp_stream_open", "zfp_field_1d", "stream_open"):
            getattr(library, name).restype = ctypes.c_void_p
        for name in ("zfp_compress", "zfp_decompress"):
            getattr(library, name).restype = ctypes.c_size_t
            getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.zfp_field_1d.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        library.stream_open.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        library.zfp_stream_open.argtypes = [ctypes.c_void_p]
        library.zfp_stream_set_bit_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.zfp_stream_rewind.argtypes = [ctypes.c_void_p]
        library.zfp_stream_set_rate.restype = ctypes.c_double
        library.zfp_stream_set_rate.argtypes = [
            ctypes.c_void_p,
            ctypes.c_double,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_int,
        ]
        library.zfp_stream_set_execution.restype = ctypes.c_int
        library.zfp_stream_set_execution.argtypes = [ctypes.c_void_p, ctypes.c_int]


def cuzfp_peers(x: Any, path: Path | None, rates: tuple[int, ...]) -> Iterator[Peer]:
    """Codecs of cuZFP, from a libzfp built with CUDA.

    Raises
    ------
    ImportError
        No libzfp was specified.
    OSError, RuntimeError
        The library cannot be loaded, or lacks CUDA.
    """
    if path is None:
        raise ImportError("no libzfp was named")
    cupy = import_module("cupy")
    zfp = _Zfp(path).library
    out = cupy.zeros_like(x)
    for rate in rates:
        stream = zfp.zfp_stream_open(None)
        if not zfp.zfp_stream_set_execution(stream, _Zfp.CUDA):
            raise RuntimeError(f"{path}: this libzfp has no CUDA: build it with -DZFP_WITH_CUDA=ON")
        zfp.zfp_stream_set_rate(stream, float(rate), _Zfp.FLOAT, 1, 0)
        wire = cupy.zeros(x.size * rate // 8 + 64, dtype=cupy.uint8)
        zfp.zfp_stream_set_bit_stream(stream, zfp.stream_open(wire.data.ptr, wire.nbytes))
        source, target = (zfp.zfp_field_1d(a.data.ptr, _Zfp.FLOAT, a.size) for a in (x, out))

        def call(function: Any, field: int, stream: int = stream, rate: int = rate) -> None:
            zfp.zfp_stream_rewind(stream)
            if not function(stream, field):
                raise RuntimeError(f"cuZFP {rate}: gave nothing")

        yield Peer(
            f"cuZFP {rate}",
            x.size * rate // 8,
            lambda call=call, field=source: call(zfp.zfp_compress, field),
            lambda call=call, field=target: call(zfp.zfp_decompress, field),
            lambda: out,
        )
