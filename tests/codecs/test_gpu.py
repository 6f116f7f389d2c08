"""Tests that codecs on a GPU give the same bytes and values as on the CPU.

The tests run with ``pytest -m gpu tests/codecs``. Without a GPU or CuPy, the tests are skipped.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from codec_data import bell, same_bits
from conversion import PAIRS, SUMMED, Pair, check_sums, sweep
from gpu_agreement import check, check_damaged, damaged, mixed
from test_codec_golden import FILE, cases, digest, inputs, seed_of

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.cuda import BFloat16, CudaCodec, Length
from hpcbench.codecs.device import cuda
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16, SHORT, Array

try:
    cuda()
    WHY_NOT = ""
except (ImportError, RuntimeError) as error:
    WHY_NOT = str(error)
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

F32 = np.dtype(np.float32)
GOLDEN = [(name, dtype) for name, dtype in cases() if name != "none"]
LENGTHS = [0, 1, 2, 3, 5, 31, 33, 127, 129, 1023, 1024, 1025, 4097, 65_535, 65_536, 65_537, 131_077, 1_000_003]
IN_TURNS, STEADY = 700_000, 300_000
"""Lengths of the vectors in the tests of streams and allocations."""
NAMES = [
    "zfp:4",
    "zfp:8",
    "zfp:16",
    "zfp:24",
    "int8:256",
    "int4:32",
    "int4:32/256",
    "rotate64+int4:32/256",
    "int3:16/256:nonuniform:stochastic",
    "int4:32/256:nonuniform:correlated",
    "int2:16/256",
    "mxfp8:e4m3",
    "mxfp6:e2m3:even",
    "mxfp4:rceil",
    "nvfp4",
    "int8:64:stochastic",
    "sign:128",
    "fp8e4m3",
    "2:4",
]
NAMES += ["mpc", "mpc:3", "xpk", "topk:0.01", "topk:0.3", "threshold:0.001", "rowsparse:7", "rowsparse:5000"]
POISON, MARGIN = 0x5A, 64


@dataclass
class Placed:
    """Values inside a byte array on the device."""

    raw: Any
    start: int
    n: int
    dtype: np.dtype[Any]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        typestr = "<V2" if self.dtype == BFLOAT16 else self.dtype.str
        pointer = int(self.raw.data.ptr) + self.start
        return {"shape": (self.n,), "typestr": typestr, "data": (pointer, False), "version": 3, "strides": None}


class OnDevice:
    """GPU memory that is poisoned around the requested part."""

    def new(self, n: int, dtype: npt.DTypeLike, offset: int = 0) -> Placed:
        import cupy

        kind = np.dtype(dtype)
        raw = cupy.full(n * kind.itemsize + 2 * MARGIN + offset, POISON, dtype=cupy.uint8)
        return Placed(raw, MARGIN + offset, n, kind)

    def put(self, x: Array, offset: int = 0) -> Placed:
        placed = self.new(x.size, x.dtype, offset)
        if x.size:
            placed.raw[placed.start : placed.start + x.nbytes].set(x.view(np.uint8))
        return placed

    def get(self, x: Placed) -> Array:
        return x.raw.get()[x.start : x.start + x.n * x.dtype.itemsize].view(x.dtype)

    def intact(self, x: Placed) -> bool:
        raw = x.raw.get()
        around = raw[: x.start].tobytes() + raw[x.start + x.n * x.dtype.itemsize :].tobytes()
        return set(around) <= {POISON}


def pair(name: str) -> tuple[CudaCodec, Compiled]:
    codec = get_codec(name)
    assert isinstance(codec, Compiled)
    return CudaCodec(codec), codec


def takes(name: str, dtype: np.dtype[Any]) -> bool:
    """Return whether a codec encodes values of a dtype."""
    return get_codec(name).lossless or dtype.name in ("float32", "float16", "bfloat16")


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_values_travel_as_numpy_casts_them(pair: Pair) -> None:
    sweep(cuda(), OnDevice(), *pair)


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_sums_of_numpy(dtype: np.dtype[Any]) -> None:
    check_sums(cuda(), OnDevice(), dtype)


@pytest.mark.parametrize(("name", "dtype"), GOLDEN, ids=str)
def test_golden_streams(name: str, dtype: np.dtype[Any]) -> None:
    gpu, codec = pair(name)
    memory, golden = OnDevice(), json.loads(FILE.read_text())[f"{name} {dtype}"]
    for label, x in inputs(dtype).items():
        wire = memory.new(codec.wire_bytes(x.size, x.dtype), np.uint8)
        used = int(gpu.encode(memory.put(x), wire, seed=seed_of(name)))
        assert digest(memory.get(wire)[:used].copy()) == golden[label], label
        check(gpu, codec, memory, x, x[::-1].copy())


@pytest.mark.parametrize(
    "dtype", [F32, np.dtype(np.float16), BFLOAT16, np.dtype(np.float64), np.dtype(np.int8)], ids=str
)
@pytest.mark.parametrize("name", NAMES)
def test_odd_sizes_and_places(name: str, dtype: np.dtype[Any]) -> None:
    gpu, codec = pair(name)
    if not takes(name, dtype):
        with pytest.raises(TypeError):
            codec.check_type(dtype)
        return
    x, other = (mixed(19_000 + max(LENGTHS), dtype, seed) for seed in (300, 400))
    for k, n in enumerate(LENGTHS):
        start = 1777 * k % 19_000
        check(gpu, codec, OnDevice(), x[start : start + n], other[start : start + n], (0, 4, 1, 2, 8)[k % 5])


@pytest.mark.parametrize("name", ["mpc", "xpk", "topk:0.01", "topk:0.0003", "threshold:0.001", "rowsparse:7"])
def test_damaged_streams(name: str) -> None:
    gpu, codec = pair(name)
    x = mixed(70_001, F32, 700)
    stream = np.zeros(codec.wire_bytes(x.size, F32), np.uint8)
    stream = stream[: codec.encode(x, stream)].copy()
    count = sum(check_damaged(gpu, codec, OnDevice(), wire, x) for wire in damaged(stream, 800, 300))
    assert 20 < count < 300


def test_streams_do_not_meet() -> None:
    """Calls of one codec alternate between two streams, and the test waits at the end."""
    import cupy

    memory = OnDevice()
    for name in ("int8:256", "mpc", "topk:0.05"):
        gpu, codec = pair(name)
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
        xs = [mixed(IN_TURNS, F32, seed) for seed in (10, 20)]
        room = codec.wire_bytes(xs[0].size, F32)
        wires = [[memory.new(room, np.uint8) for _ in range(6)] for _ in streams]
        values = [memory.put(x) for x in xs]
        cupy.cuda.Device().synchronize()
        lengths: list[list[int | Length]] = [[], []]
        for turn in range(6):
            for k, stream in enumerate(streams):
                lengths[k].append(gpu.encode(values[k], wires[k][turn], stream=stream))
        for k, x in enumerate(xs):
            streams[k].synchronize()
            expected = np.zeros(room, np.uint8)
            used = codec.encode(x, expected)
            for turn in range(6):
                assert int(lengths[k][turn]) == used
                assert same_bits(memory.get(wires[k][turn])[:used].copy(), expected[:used])


@pytest.mark.parametrize("name", ["zfp:8", "int8:256", "mpc", "xpk", "topk:0.01", "threshold:0.001", "rowsparse:64"])
def test_the_steady_path_allocates_nothing(name: str) -> None:
    import cupy

    gpu, codec = pair(name)
    memory, x = OnDevice(), mixed(STEADY, F32, 30)
    room = codec.wire_bytes(x.size, F32)
    values, wire, other, out = memory.put(x), memory.new(room, np.uint8), memory.new(room, np.uint8), memory.put(x)

    def everything() -> None:
        used = int(gpu.encode(values, wire))
        coded = Placed(wire.raw, wire.start, used, np.dtype(np.uint8))
        int(gpu.decode(coded, out))
        int(gpu.decode(coded, out, accumulate=True))
        int(gpu.decode_add_encode(coded, values, other))

    class Count(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "count"
        calls = 0

        def malloc_preprocess(self, **_: Any) -> None:
            self.calls += 1

        def alloc_preprocess(self, **_: Any) -> None:
            self.calls += 1

    pinned: list[int] = []

    def pin(size: int) -> Any:
        pinned.append(size)
        return cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(size), 0)

    everything()
    cupy.cuda.set_pinned_memory_allocator(pin)
    try:
        with Count() as count:
            for _ in range(5):
                everything()
    finally:
        cupy.cuda.set_pinned_memory_allocator(cupy.get_default_pinned_memory_pool().malloc)
    assert count.calls == 0
    assert not pinned


def test_torch_shares_its_memory() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    x = torch.from_numpy(bell(10_000, 40).astype(np.float32)).cuda()
    for name in ("int8:256", "xpk"):
        gpu, codec = pair(name)
        for tensor in (x, x.half(), x.bfloat16(), x.clone().requires_grad_()):
            dtype = BFLOAT16 if tensor.dtype == torch.bfloat16 else np.dtype(str(tensor.dtype).removeprefix("torch."))
            view = tensor.detach().view(torch.int16) if dtype == BFLOAT16 else tensor.detach()
            host = view.cpu().numpy().view(dtype)
            wire = torch.zeros(codec.wire_bytes(host.size, dtype), dtype=torch.uint8, device="cuda")
            expected = np.zeros(wire.numel(), np.uint8)
            used = codec.encode(host, expected)
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                length = gpu.encode(tensor, wire)
                torch.cuda.current_stream().synchronize()
            assert int(length) == used
            assert same_bits(wire.cpu().numpy()[:used], expected[:used])


def test_words_as_bfloat16() -> None:
    import cupy

    gpu, codec = pair("int8:256")
    x = mixed(5003, BFLOAT16, 50)
    wire = cupy.zeros(codec.wire_bytes(x.size, BFLOAT16), dtype=cupy.uint8)
    gpu.encode(BFloat16(cupy.asarray(x.view(np.uint16))), wire)
    expected = np.zeros(wire.size, np.uint8)
    codec.encode(x, expected)
    assert same_bits(wire.get(), expected)


@pytest.mark.parametrize("name", ["int8:256", "mpc", "topk:0.001"])
def test_more_values_than_31_bits_count(name: str) -> None:
    """4.3 GB of bfloat16. The CPU must produce the same bytes."""
    import cupy

    n = 2**31 + 77
    if cupy.cuda.runtime.memGetInfo()[0] < 24 * 2**30:
        pytest.skip("needs 24 GiB on the GPU")
    gpu, codec = pair(name)
    assert Compiled in type(codec).__mro__
    assert codec.check_type(BFLOAT16) in SHORT
    x = np.resize(mixed(1_000_003, BFLOAT16, 60), n)
    expected = np.zeros(codec.wire_bytes(n, BFLOAT16), np.uint8)
    used = codec.encode(x, expected)
    memory = OnDevice()
    wire = memory.new(expected.size, np.uint8)
    assert int(gpu.encode(memory.put(x), wire)) == used
    assert same_bits(memory.get(wire)[:used], expected[:used])
    cupy.get_default_memory_pool().free_all_blocks()
