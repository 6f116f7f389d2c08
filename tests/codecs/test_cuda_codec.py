"""Tests of the GPU back end's Python code on an emulated device: arguments, lengths, scratch memory and errors."""

import gc
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from codec_data import bell
from emulated_device import EmulatedDevice, Fenced
from gpu_agreement import check, mixed

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.cuda import BFloat16, CudaCodec, Length
from hpcbench.codecs.device import Build, view_of
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.sequence import OPERATIONS, sequence_of
from hpcbench.codecs.types import BFLOAT16

F32 = np.dtype(np.float32)


def on(name: str, device: EmulatedDevice | None = None) -> tuple[Compiled, CudaCodec]:
    codec = get_codec(name)
    assert isinstance(codec, Compiled)
    return codec, CudaCodec(codec, device or EmulatedDevice())


def buffers(codec: Compiled, n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    x = bell(n, 70).astype(np.float32)
    return x, np.zeros(codec.wire_bytes(n, x.dtype), np.uint8)


@pytest.mark.parametrize(
    "name",
    [
        "zfp:8",
        "int8:256",
        "int4:32:stochastic",
        "int8:32:correlated",
        "int3:16/256:stochastic",
        "mxfp6:e3m2",
        "nvfp4",
        "sign:128",
        "fp8e4m3",
        "2:4",
    ],
)
def test_codecs_of_fixed_size_return_their_length_at_once(name: str) -> None:
    codec, gpu = on(name)
    x, wire = buffers(codec)
    assert gpu.fixed_size
    assert type(gpu.encode(x, wire)) is int
    assert type(gpu.decode(wire, x)) is int
    assert type(gpu.decode_add_encode(wire.copy(), x, wire)) is int
    for dtype in (F32, BFLOAT16):
        check(gpu, codec, Fenced(), mixed(5003, dtype, 300), mixed(5003, dtype, 400))


def test_codecs_of_variable_size_return_a_length_that_waits() -> None:
    codec, gpu = on("mpc")
    x, wire = buffers(codec)
    x[500:] = 1.0
    length = gpu.encode(x, wire)
    assert isinstance(length, Length)
    expected = codec.encode(x, np.zeros_like(wire))
    assert int(length) == expected == int(length)
    assert wire[:length].size == expected, "it is an index"


def test_the_scratch_is_allocated_once() -> None:
    device = EmulatedDevice()
    codec, gpu = on("mpc", device)
    x, wire = buffers(codec)
    for _ in range(5):
        int(gpu.encode(x, wire))
    assert device.memories == 1
    first, second = gpu.encode(x, wire), gpu.encode(2 * x, wire)  # concurrent calls need separate memory
    assert device.memories == 2
    assert int(second) == int(first)
    for _ in range(5):
        gpu.encode(x, wire)  # the length is never read; its memory is freed with the object
    gc.collect()
    assert device.memories == 2
    topk, sparse = on("topk:0.1", device)
    x, wire = buffers(topk)
    for _ in range(3):
        assert type(sparse.encode(x, wire)) is int
    assert device.memories == 3


def test_a_malformed_stream_is_reported_when_the_length_is_read() -> None:
    codec, gpu = on("xpk")
    x, wire = buffers(codec)
    used = int(gpu.encode(x, wire))
    damaged = wire[:used].copy()
    damaged[0] ^= 1
    length = gpu.decode(damaged, x)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"xpk: {used} bytes do not encode 3000 values of float32"):
            int(length)


@pytest.mark.parametrize("name", ["zfp:8", "topk:0.1", "mpc"])
def test_wrong_arrays_are_refused(name: str) -> None:
    codec, gpu = on(name)
    x, wire = buffers(codec)
    locked = x.copy()
    locked.flags.writeable = False
    for match, call in {
        "needed": lambda: gpu.encode(x, wire[:-1]),
        "contiguous": lambda: gpu.encode(x[::2], wire),
        "uint8": lambda: gpu.encode(x, wire.view(np.int8)),
        "give a float32 array of the same size": lambda: gpu.encode(x, wire, residual=x[:-1]),
        "read-only": lambda: gpu.decode(wire, locked),
        "arrays of this device": lambda: gpu.encode([1.0], wire),
    }.items():
        with pytest.raises((ValueError, TypeError), match=match):
            call()
    if gpu.fixed_size:
        with pytest.raises(ValueError, match="bytes do not encode 3000 values"):
            gpu.decode(wire[:-4], x)
    else:
        with pytest.raises(TypeError, match="decode first, then add"):
            gpu.decode(wire, np.zeros(9, np.int32), accumulate=True)
    with pytest.raises(TypeError, match="float32, float16"):
        gpu.decode_add_encode(wire, x.astype(np.float64), wire)


def test_codecs_without_kernels_are_refused() -> None:
    with pytest.raises(TypeError, match="none: has no kernels for a GPU"):
        CudaCodec(get_codec("none"), EmulatedDevice())


def test_a_view_follows_the_array_interface() -> None:
    interface = {"shape": (7,), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None}
    view = view_of("x", interface)
    assert (view.pointer, view.size, view.dtype, view.writeable, view.nbytes) == (4096, 7, F32, True, 28)
    assert view_of("x", interface | {"typestr": "<V2"}).dtype == BFLOAT16
    assert not view_of("x", interface | {"data": (4096, True)}).writeable
    assert view_of("x", interface | {"shape": (1,), "strides": (400,)}).size == 1
    for wrong in ({"shape": (7, 1)}, {"strides": (8,)}, {"typestr": ">f4"}):
        with pytest.raises(ValueError, match=r"contiguous|byte order"):
            view_of("x", interface | wrong)
    int16_array = SimpleNamespace(__cuda_array_interface__=interface | {"typestr": "<i2"})
    assert view_of("x", BFloat16(int16_array).__cuda_array_interface__).dtype == BFLOAT16
    with pytest.raises(TypeError, match="uint16 or int16"):
        BFloat16(SimpleNamespace(__cuda_array_interface__=interface))


def test_every_family_has_a_sequence_whose_kernels_exist() -> None:
    for name in ("zfp:8", "mpc", "xpk", "topk:0.1", "threshold:1", "rowsparse:4"):
        codec, gpu = on(name)
        sequence = sequence_of(codec.family)
        assert set(sequence.kernels) == set(OPERATIONS)
        source = (gpu._device.kernels / "gpu" / sequence.source).read_text()  # type: ignore[attr-defined]
        for kernels in sequence.kernels.values():
            assert all(f"{kernel}(" in source for kernel in kernels)


def test_options_choose_the_compiled_functions() -> None:
    options = Build("gpu.cu", 7, 256, 2, 0).options()
    assert {"-DHB_CODEC=7", "-DHB_PARAM=256ull", "-DHB_TYPE=2", "-DHB_OUT=0", "--fmad=false"} <= set(options)


def test_missing_cupy_is_reported_in_one_line() -> None:
    program = (
        "import sys; sys.modules['cupy'] = None\n"
        "from hpcbench.codecs.cuda import CudaCodec\n"
        "from hpcbench.codecs.registry import get_codec\n"
        "CudaCodec(get_codec('zfp:8'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: codecs on a GPU need CuPy" in done.stderr.splitlines()[-1]
    assert "pip install cupy-cuda13x, or cupy-cuda12x on a V100" in done.stderr.splitlines()[-1]


def test_cupy_is_not_imported_before_it_is_needed() -> None:
    program = "import sys, hpcbench.codecs.cuda; assert 'cupy' not in sys.modules and 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
