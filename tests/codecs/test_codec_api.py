"""Tests of behavior that all codecs share: lookup by name, dtypes, rejections, and the selection of a build."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from codec_data import bell, builds, decode, encode, float_sets, same_bits

from hpcbench.codecs import library, spec
from hpcbench.codecs.identity import Identity
from hpcbench.codecs.registry import get_codec, instruction_set
from hpcbench.codecs.types import BFLOAT16

NAMES = [
    *("none", "zfp:4", "zfp:8", "zfp:13", "zfp:32", "mpc", "mpc:3", "xpk", "fp16", "bf16", "fp8e4m3", "fp8e5m2"),
    *(
        "int8:256",
        "int8:32:stochastic",
        "int4:32/256:correlated",
        "int4:32",
        "int4:32/256",
        "rotate64+int4:32/256",
        "mxfp8:e4m3",
        "mxfp6:e2m3",
        "mxfp4:rceil",
        "nvfp4",
        "int3:16/256:nonuniform",
        "sign:1024",
        "topk:0.01",
        "topk:0.5",
        "threshold:0.5",
    ),
    *("rowsparse:50", "2:4"),
]


@pytest.mark.parametrize("name", NAMES)
def test_properties(name: str) -> None:
    codec = get_codec(name)
    x = bell(5000, 70).astype(np.float32)
    assert codec.name == name
    wire = encode(codec, x)
    room = codec.wire_bytes(x.size, x.dtype)
    assert wire.size == room if codec.fixed_size else wire.size <= room
    y = decode(codec, wire, x.size, x.dtype)
    assert same_bits(y, x) == codec.lossless
    bound = codec.error_bound(x)
    assert bound is not None
    assert np.abs(y - x).max() <= bound
    assert (bound == 0.0) == codec.lossless
    total = np.full_like(x, 0.5)
    codec.decode(wire, total, accumulate=True)
    assert same_bits(total, np.float32(0.5) + y)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16])
@pytest.mark.parametrize("name", NAMES)
def test_builds_agree(name: str, dtype: Any) -> None:
    """All builds give the same bytes and values, for finite and non-finite input."""
    codecs = {build: get_codec(name, kernels) for build, kernels in builds().items()}
    assert "generic" in codecs
    sets = float_sets(1500)
    sets["special"] = np.where(sets["bell"] > 2e-3, np.float32(np.inf), sets["bell"])
    sets["subnormal"] = np.ldexp(sets["bell"], -130).astype(np.float32)
    for label, wide in sets.items():
        with np.errstate(over="ignore"):
            x = wide.astype(dtype)
        wires = {build: encode(codec, x) for build, codec in codecs.items()}
        values = {build: decode(codec, wires[build], x.size, x.dtype) for build, codec in codecs.items()}
        for build in codecs:
            assert same_bits(wires[build], wires["generic"]), (label, build)
            assert same_bits(values[build], values["generic"]), (label, build)


def test_identity_takes_every_type() -> None:
    codec = Identity()
    for dtype in ("f2", "f4", "f8", "i1", "i8", "c16", "?"):
        x = (bell(77, 71) * 10).astype(dtype)
        assert codec.wire_bytes(77, x.dtype) == x.nbytes
        wire = encode(codec, x)
        assert wire.tobytes() == x.tobytes()
        assert same_bits(decode(codec, wire, 77, dtype), x)
    total = np.ones(3)
    codec.decode(encode(codec, np.array([1.0, 2.0, np.nan])), total, accumulate=True)
    assert same_bits(total, np.array([2.0, 3.0, np.nan]))


@pytest.mark.parametrize("dtype", ["f8", "i4", "?", ">f4"])
@pytest.mark.parametrize("name", [name for name in NAMES if not get_codec(name).lossless])
def test_lossy_codecs_take_types_that_float32_can_represent(name: str, dtype: str) -> None:
    codec = get_codec(name)
    x = np.zeros(8, dtype=dtype)
    with pytest.raises((TypeError, ValueError), match=r"float32|byte order"):
        codec.encode(x, np.zeros(64, dtype=np.uint8))
    with pytest.raises((TypeError, ValueError), match=r"float32|byte order"):
        codec.decode(np.zeros(8, dtype=np.uint8), x)


@pytest.mark.parametrize("name", NAMES)
def test_a_residual_fits_the_values(name: str) -> None:
    codec = get_codec(name)
    x = np.ones(100, dtype=np.float32)
    wire = np.zeros(codec.wire_bytes(100, x.dtype), dtype=np.uint8)
    for wrong in (np.zeros(99, dtype=np.float32), np.zeros(100), np.zeros(200, dtype=np.float32)[::2]):
        with pytest.raises(ValueError, match=r"residual|contiguous"):
            codec.encode(x, wire, residual=wrong)
    with pytest.raises(TypeError, match="float32"):
        codec.encode(np.ones(100), np.zeros(2000, dtype=np.uint8), residual=np.zeros(100, dtype=np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arrays_are_refused(name: str) -> None:
    codec = get_codec(name)
    x = np.ones(100, dtype=np.float32)
    room = np.zeros(codec.wire_bytes(100, x.dtype), dtype=np.uint8)
    locked = x.copy()
    locked.flags.writeable = False
    wire = encode(codec, x)
    refusals: list[tuple[str, Any]] = [
        ("needed", lambda: codec.encode(x, room[:-1])),
        ("contiguous", lambda: codec.encode(x[::2], room)),
        ("contiguous", lambda: codec.encode(x.reshape(10, 10), room)),
        ("contiguous", lambda: codec.decode(wire, np.ones(200, dtype=np.float32)[::2])),
        ("uint8", lambda: codec.encode(x, room.view(np.int8))),
        ("uint8", lambda: codec.decode(wire.view(np.int8), x)),
        ("read-only", lambda: codec.decode(wire, locked)),
        ("bytes", lambda: codec.decode(wire[:-1], x.copy())),
        ("bytes", lambda: codec.decode(np.append(wire, np.uint8(1)), x.copy())),
    ]
    for message, call in refusals:
        with pytest.raises(ValueError, match=message):
            call()


def test_unknown_names_are_refused() -> None:
    for name in ("zfp:2", "gzip", ""):
        with pytest.raises(ValueError, match="known"):
            get_codec(name)


def test_another_package_may_register_a_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    class Negated(Identity):
        name = "negated"

    class Plugin(EntryPoint):
        def load(self) -> Any:
            return lambda parameter: Negated() if parameter == "7" else None

    def points(group: str, name: str) -> list[EntryPoint]:
        assert group == "hpcbench.codecs"
        return [Plugin("negated", "plugin:make", group)] if name == "negated" else []

    monkeypatch.setattr(spec, "entry_points", points)
    assert isinstance(get_codec("negated:7"), Negated)
    assert get_codec("mpc").name == "mpc"


def test_a_build_can_be_forced() -> None:
    assert instruction_set() in library.INSTRUCTION_SETS
    code = "from hpcbench.codecs.registry import instruction_set; print(instruction_set())"
    for build in builds():
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"HPCBENCH_ISA": build}
        )
        assert done.stdout.strip() == build
    with pytest.raises(ValueError, match="avx512, avx2, sse2, generic"):
        library.kernels("mmx")


def test_missing_kernels_name_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_NAME", "libnot_there.so")
    with pytest.raises(ImportError, match=r"pip install \."):
        library.library_path()
