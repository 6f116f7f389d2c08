"""GPU tests that run on a stand-in for CuPy, so that the Python code between codecs and CuPy is tested without a GPU.

The stand-in reproduces two faults of CuPy: compiled kernels flush subnormal values, and a CuPy stream object may
destroy a stream that another library owns. The tests cover both faults.
"""

import gc
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_gpu
import test_gpu_chunks
import test_gpu_sparse
import test_gpu_tiles
from conversion import PAIRS, SUMMED
from emulator import build_of
from gpu_agreement import mixed
from test_gpu import F32, GOLDEN, NAMES
from use_standin import has_gpu, standin

from hpcbench.codecs import convert, cubin, device
from hpcbench.codecs.cuda import CudaCodec
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16

F16 = np.dtype(np.float16)
KINDS = (F32, BFLOAT16, np.dtype(np.float64), np.dtype(np.int8))
SHORT = [n for n in test_gpu.LENGTHS if n < 5000]

ELSEWHERE = {build_of(*case) for case in test_gpu_tiles.CASES}
ELSEWHERE |= {build_of(name, dtype, dtype) for name, dtype in test_gpu_sparse.CASES}
ELSEWHERE |= {build_of(name, dtype, dtype) for name in test_gpu_chunks.NAMES for dtype in test_gpu_chunks.DTYPES[:-1]}
"""Kernels that other tests run on the emulator and compare with the CPU.

test_codec_golden.py compares the CPU with the golden streams.
"""
OTHERS = {build: case for case in GOLDEN if (build := build_of(*case, case[1])) not in ELSEWHERE}
STREAMS = [("int8:256", F32), *OTHERS.values()]
"""Golden streams, one for each kernel that no other test runs."""
PLACES = [
    (name, dtype)
    for name in NAMES
    for dtype in KINDS
    if dtype == F32 or not test_gpu.takes(name, dtype) or build_of(name, dtype, dtype) in ELSEWHERE
]


def sampled(cases: list[Any], sample: Any) -> list[Any]:
    """Return the cases. Cases outside the sample are marked for `make test-long`."""
    return [pytest.param(*case, marks=[] if sample(case) else pytest.mark.long) for case in cases]


@pytest.fixture(autouse=True)
def cupy(need: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install the stand-in, and turn warnings into errors."""
    need("a GPU is here: test_gpu.py runs on it" if has_gpu() else None)
    for name, value in {"LENGTHS": SHORT, "IN_TURNS": 7000, "STEADY": 9000}.items():
        monkeypatch.setattr(test_gpu, name, value)  # more values would take too long on an emulated GPU
    with standin(), warnings.catch_warnings():
        warnings.simplefilter("error")
        import cupy

        yield cupy


# ------------------------------------------------------------------------------------------- the tests for GPUs


@pytest.mark.parametrize("pair", sampled([(pair,) for pair in PAIRS], lambda case: case[0] == (F32, F16)), ids=str)
def test_conversions(pair: Any) -> None:
    test_gpu.sweep(device.cuda(), test_gpu.OnDevice(), *pair)


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_sums(dtype: np.dtype[Any]) -> None:
    test_gpu.test_sums_of_numpy(dtype)


@pytest.mark.parametrize(("name", "dtype"), sampled(STREAMS, lambda case: case == ("int8:256", F32)), ids=str)
def test_golden_streams(name: str, dtype: np.dtype[Any]) -> None:
    test_gpu.test_golden_streams(name, dtype)


@pytest.mark.parametrize(
    ("name", "dtype"),
    sampled(PLACES, lambda case: case[1] == F32 and case[0] in ("zfp:8", "mpc", "topk:0.01")),
    ids=str,
)
def test_odd_sizes_and_places(name: str, dtype: np.dtype[Any]) -> None:
    test_gpu.test_odd_sizes_and_places(name, dtype)


@pytest.mark.long
def test_damaged_streams() -> None:
    test_gpu.test_damaged_streams("topk:0.01")


def test_streams_do_not_meet() -> None:
    test_gpu.test_streams_do_not_meet()


@pytest.mark.parametrize("name", ["int8:256", "mpc"])
def test_the_steady_path_allocates_nothing(name: str) -> None:
    test_gpu.test_the_steady_path_allocates_nothing(name)


def test_words_as_bfloat16() -> None:
    test_gpu.test_words_as_bfloat16()


# ------------------------------------------------------------------------------------------------ what CuPy compiles


def subnormals() -> dict[str, np.ndarray]:
    """Return results for the smallest values: float16 values converted to float32, and sums of float32 values."""
    import cupy

    gpu, halves = device.cuda(), np.array([1, 2, 0x8003], np.uint16)
    sent, out = cupy.asarray(halves).view(cupy.float16), cupy.zeros(3, cupy.float32)
    total, terms = (cupy.asarray(np.array(bits, np.uint32)).view(cupy.float32) for bits in ([1, 2, 3], [1, 1, 5]))
    convert.convert(gpu, *(gpu.view("", x, 0) for x in (out, sent)), 0)
    convert.add(gpu, *(gpu.view("", x, 0) for x in (total, terms)), 0)
    return {"widened": out.get(), "sums": total.get().view(np.uint32)}


def test_subnormal_values_survive() -> None:
    results = subnormals()
    assert results["widened"].tolist() == [2.0**-24, 2.0**-23, -3 * 2.0**-24]
    assert results["sums"].tolist() == [2, 3, 8]


def test_source_that_cupy_compiles_itself_loses_subnormal_values(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`RawModule(code=...)` has this fault, so the previous test would detect the fault."""

    def module(self: Any, build: device.Build) -> Any:
        return cupy.RawModule(code=f'#include "{build.source}"\n', options=build.options())

    monkeypatch.setattr(device.CupyDevice, "_module", module)
    results = subnormals()
    assert results["widened"].tolist() == results["sums"].tolist() == [0, 0, 0]


def test_the_package_uses_no_computation_of_cupy() -> None:
    """CuPy's own kernels flush subnormals. The permitted functions only copy bytes or load compiled kernels."""
    used = set()
    for path in Path(device.__file__).parents[1].rglob("*.py"):
        used |= set(re.findall(r"\b_?cupy\.(\w+)", path.read_text()))
    assert used == {"cuda", "RawModule", "asarray", "asnumpy", "copyto", "empty", "from_dlpack", "__version__"}
    assert "RawModule(path=" in Path(device.__file__).read_text()


def test_a_build_is_compiled_once_for_all_processes(cupy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "made by the first"))
    compiled: list[str] = []
    plain = cupy.cuda.compiler.compile_using_nvrtc

    def compile_using_nvrtc(source: str, options: tuple[str, ...], arch: str | None) -> tuple[bytes, None]:
        compiled.append(source)
        assert not any("ftz" in option for option in options)
        return plain(source, options, arch)

    monkeypatch.setattr(cupy.cuda.compiler, "compile_using_nvrtc", compile_using_nvrtc)
    build = convert.sum_build_of(F32)
    for _ in range(2):
        device._device.cache_clear()  # as in another process
        for _ in range(2):
            device.cuda()._module(build)  # type: ignore[attr-defined]
    assert len(compiled) == 1
    monkeypatch.setattr(cubin, "_source_hash", lambda: "of other sources")
    device._device.cache_clear()
    device.cuda()._module(build)  # type: ignore[attr-defined]
    assert len(compiled) == 2


# --------------------------------------------------------------------------------------------- streams of others


class Foreign:
    """A stream owned by another library, in the form in which PyTorch exposes streams."""

    def __init__(self, cupy: Any) -> None:
        self.owner = cupy.cuda.Stream(non_blocking=True)
        self.cuda_stream = self.owner.ptr


def work_on(stream: Foreign) -> None:
    """Encode repeatedly on a stream, and wait for it. Raise an error if the stream was destroyed in the meantime."""
    codec = get_codec("int8:256")
    gpu, memory, x = CudaCodec(codec), test_gpu.OnDevice(), mixed(1000, F32, 30)
    wire, values = memory.new(codec.wire_bytes(x.size, F32), np.uint8), memory.put(x)
    expected = np.zeros(wire.n, np.uint8)
    codec.encode(x, expected)
    for _ in range(3):
        assert gpu.encode(values, wire, stream=stream) == wire.n
        gc.collect()
    stream.owner.synchronize()
    assert np.array_equal(memory.get(wire), expected)


def test_a_stream_of_another_library_is_used_without_deprecated_names(cupy: Any) -> None:
    work_on(Foreign(cupy))
    with pytest.raises(DeprecationWarning):  # the fixture turns the warning into an error
        cupy.cuda.ExternalStream(0)


def test_a_stream_of_another_library_is_used_by_the_only_name_that_cupy_13_has(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[int] = []

    class ExternalStream(cupy.cuda.stream._BaseStream):  # type: ignore[misc, name-defined]
        def __init__(self, ptr: int) -> None:
            streams.append(ptr)
            super().__init__(ptr)

    monkeypatch.delattr(cupy.cuda.Stream, "from_external")
    monkeypatch.setattr(cupy.cuda, "ExternalStream", ExternalStream)
    stream = Foreign(cupy)
    work_on(stream)
    assert streams == [stream.cuda_stream]


def test_a_stream_of_another_library_outlives_a_cupy_that_destroys_it(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = cupy.cuda.Stream.from_external.__func__

    def from_external(cls: Any, stream: Any) -> Any:
        wrapped = plain(cls, stream)
        wrapped._foreign = None  # as if the stream belonged to CuPy
        return wrapped

    monkeypatch.setattr(cupy.cuda.Stream, "from_external", classmethod(from_external))
    stream = Foreign(cupy)
    work_on(stream)
    cupy.cuda.Stream.from_external(stream.owner)  # the object is discarded immediately
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="does not exist, or it was destroyed"):
        work_on(stream)
    stream.owner._foreign = stream  # prevents a second destruction
    device.cuda()._streams[stream.cuda_stream]._foreign = stream  # type: ignore[attr-defined]


def test_an_array_that_only_dlpack_shows_is_used_after_the_work_that_makes_it(cupy: Any) -> None:
    class Shared:
        """An array that is written on the current stream of the library that owns it."""

        def __init__(self, array: Any) -> None:
            self._array, self.__dlpack_device__ = array, array.__dlpack_device__

        def __dlpack__(self, *, stream: int) -> Any:
            with maker:
                return self._array.__dlpack__(stream=stream)

    codec, x = get_codec("int8:256"), mixed(1000, F32, 30)
    expected = np.zeros(codec.wire_bytes(x.size, F32), np.uint8)
    codec.encode(x, expected)
    maker, user = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    ready, late = cupy.asarray(x), cupy.empty(x.size, F32)
    wire = cupy.zeros(expected.size, cupy.uint8)
    cupy.cuda.Device().synchronize()
    with maker:
        cupy.copyto(late, ready)
    CudaCodec(codec).encode(Shared(late), wire, stream=user)
    user.synchronize()
    assert np.array_equal(wire.get(), expected)
    with pytest.raises(TypeError, match="takes arrays in GPU memory, not ndarray"):
        CudaCodec(codec).encode(x, wire)


@pytest.mark.long
def test_the_benchmark_measures_codecs_without_their_peers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import codecs_gpu

    file = tmp_path / "rows.json"
    monkeypatch.setattr(codecs_gpu, "CODECS", ("int8:256", "mpc"))
    monkeypatch.setattr(codecs_gpu, "peers", lambda *_: iter(()))
    monkeypatch.setattr("sys.argv", ["benchmarks/codecs_gpu.py", "--tiny", "--json", str(file)])
    assert codecs_gpu.main() in (0, None)
    rows = {row["name"]: row for row in json.loads(file.read_text())["rows"]}
    assert list(rows) == ["as fp16", "as bf16", "int8:256", "mpc"]
    assert rows["mpc"]["rmse"] == 0
    assert rows["int8:256"]["ratio"] == pytest.approx(4, rel=0.02)
    assert 1e-3 < rows["int8:256"]["rmse"] < 1e-2
    for name in ("int8:256", "mpc"):
        assert set(rows[name]["speeds"]) == {"encode", "decode", "add", "fused"}
        assert rows[name]["three_kernels"] > 0
