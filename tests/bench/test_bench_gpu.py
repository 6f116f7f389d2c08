"""Tests of GPU measurements with arrays that replace CuPy's. The host cannot access these arrays."""

import sys
import types
from typing import Any

import numpy as np
import pytest
from bench_cli import bench

from hpcbench.bench import gpu as module
from hpcbench.codecs.types import BFLOAT16


class There:
    """An array in simulated device memory, which NumPy cannot access."""

    def __init__(self, hidden: Any) -> None:
        self.hidden = hidden
        self.__cuda_array_interface__ = {"typestr": hidden.dtype.str, "shape": hidden.shape}

    def __getitem__(self, key: slice) -> "There":
        return There(self.hidden[key])

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("this array lies on a device")


def seen(array: Any) -> Any:
    """Return the array interface for kernels. bfloat16 is declared as two raw bytes."""
    phrase = array.words.hidden if hasattr(array, "words") else array.hidden
    assert phrase.dtype != BFLOAT16, "CuPy has no such type"
    return phrase.view(BFLOAT16) if array.__cuda_array_interface__["typestr"] == "<V2" else phrase


class OnDevice:
    """A CPU codec that accepts only device arrays and returns lengths with a delay."""

    def __init__(self, codec: Any, device: Any) -> None:
        if codec.name == "none":
            raise TypeError("none: has no kernels for a GPU")
        self._codec, self.name, self.lossless = codec, codec.name, codec.lossless
        self.wire_bytes = codec.wire_bytes

    def encode(self, x: Any, out: Any) -> Any:
        return np.array(self._codec.encode(seen(x), seen(out)))

    def decode(self, wire: Any, out: Any, **how: Any) -> Any:
        self._codec.decode(seen(wire), seen(out), **how)

    def decode_add_encode(self, wire: Any, local: Any, out: Any) -> Any:
        return np.array(self._codec.decode_add_encode(seen(wire), seen(local), seen(out)))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Replace CuPy and the GPU codecs, and count the synchronizations with the device."""
    waited = {"times": 0}

    def synchronize() -> None:
        waited["times"] += 1

    device = types.SimpleNamespace(id=0, compute_capability="90")
    cupy: Any = types.ModuleType("cupy")
    cupy.cuda = types.SimpleNamespace(
        Device=lambda: device,
        runtime=types.SimpleNamespace(getDeviceProperties=lambda number: {"name": b"Fake GPU"}),
        get_current_stream=lambda: types.SimpleNamespace(synchronize=synchronize),
    )
    cupy.asarray = lambda x: There(x.copy())
    cupy.asnumpy = lambda x: x.hidden.copy()
    cupy.empty = lambda n, dtype: There(np.zeros(n, dtype))
    cupy.copyto = lambda target, source: np.copyto(target.hidden, source.hidden)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(module, "cuda", lambda: None)
    monkeypatch.setattr(module, "CudaCodec", OnDevice)
    return waited


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_codecs_are_measured_in_the_memory_of_the_device(
    kind: str, gpu: dict[str, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["int8", "mpc", "bf16"]
    assert bench(monkeypatch, *names, "--type", kind, "--device", "gpu", "--repeats", "2") == 0
    there = capsys.readouterr().out.splitlines()
    assert there[0].startswith(f"gradient, 0.05 MiB of {kind}; Fake GPU, kernels sm_90 ")
    assert gpu["times"] == 2 * 3 * (1 + 4 * 3), "before and after each call of three turns"
    assert bench(monkeypatch, *names, "--type", kind, "--repeats", "2") == 0
    here = capsys.readouterr().out.splitlines()
    rows = [[line for line in lines if line.startswith(tuple(names))] for lines in (here, there)]
    assert len(rows[0]) == len(names)
    for ours, theirs in zip(*rows, strict=True):
        a, b = ours.split(), theirs.split()
        assert a[:3] + a[-4:] == b[:3] + b[-4:], "size and errors do not depend on the device"


def test_what_has_no_kernels_is_left_out_and_named(
    gpu: dict[str, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(monkeypatch, "--device", "gpu") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "Not available on this device: none" and not any(line.startswith("none ") for line in out)
    assert bench(monkeypatch, "none", "--device", "gpu") == 2
    assert capsys.readouterr().err == "hpcbench: none: has no kernels for a GPU\n"


def no_gpu() -> None:
    raise RuntimeError("CUDA cannot use a GPU on this machine: no driver")


def no_library() -> None:
    raise ImportError("the kernels are not there")


@pytest.mark.parametrize(
    ("name", "instead", "says"),
    [
        ("cuda", no_gpu, "--device gpu: CUDA cannot use a GPU on this machine"),
        ("kernels", no_library, "--device gpu: the kernels are not there"),
    ],
)
def test_what_is_missing_is_one_line(
    name: str, instead: Any, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, name, instead)
    assert bench(monkeypatch, "int8", "--device", "gpu") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


def test_no_cupy_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert bench(monkeypatch, "int8", "--device", "gpu") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--device gpu: codecs on a GPU need CuPy" in err
    assert err.count("\n") == 1
