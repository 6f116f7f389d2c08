"""Tests of codec names."""

import subprocess
import sys

import pytest

from hpcbench.codecs import library
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.identity import Identity
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.spec import FAMILIES, parse

KNOWN = [
    ("none", "none", "", "none", True),
    ("zfp:4", "zfp", "4", "zfp:4", False),
    ("zfp:32", "zfp", "32", "zfp:32", False),
    ("zfp:08", "zfp", "8", "zfp:8", False),
    ("mpc", "mpc", "1", "mpc", True),
    ("mpc:1", "mpc", "1", "mpc", True),
    ("mpc:32", "mpc", "32", "mpc:32", True),
    ("xpk", "xpk", "", "xpk", True),
    ("fp16", "fp16", "", "fp16", False),
    ("bf16", "bf16", "", "bf16", False),
    ("fp8e4m3", "fp8e4m3", "", "fp8e4m3", False),
    ("fp8e5m2", "fp8e5m2", "", "fp8e5m2", False),
    ("int8", "int8", "256", "int8:256", False),
    ("int4:1024", "int4", "1024", "int4:1024", False),
    ("int4:16/256", "int4", "16/256", "int4:16/256", False),
    ("int4:032/256:nonuniform", "int4", "32/256:nonuniform", "int4:32/256:nonuniform", False),
    ("int3", "int3", "32/256", "int3:32/256", False),
    (
        "int3:16/256:nonuniform:stochastic",
        "int3",
        "16/256:nonuniform:stochastic",
        "int3:16/256:nonuniform:stochastic",
        False,
    ),
    ("int2", "int2", "16/256", "int2:16/256", False),
    ("int2:32/256:stochastic", "int2", "32/256:stochastic", "int2:32/256:stochastic", False),
    ("mxfp8", "mxfp8", "e4m3", "mxfp8:e4m3", False),
    ("mxfp8:e5m2:rceil", "mxfp8", "e5m2:rceil", "mxfp8:e5m2:rceil", False),
    ("mxfp6:e2m3:floor", "mxfp6", "e2m3", "mxfp6:e2m3", False),
    ("mxfp4", "mxfp4", "floor", "mxfp4", False),
    ("mxfp4:floor", "mxfp4", "floor", "mxfp4", False),
    ("mxfp4:even", "mxfp4", "even", "mxfp4:even", False),
    ("nvfp4", "nvfp4", "", "nvfp4", False),
    ("rotate32+mxfp4:rceil", "mxfp4", "rceil", "rotate32+mxfp4:rceil", False),
    ("rotate64+int4", "int4", "32", "rotate64+int4:32", False),
    ("hadamard1024+int4:16/256", "int4", "16/256", "hadamard1024+int4:16/256", False),
    ("int8:32:stochastic", "int8", "32:stochastic", "int8:32:stochastic", False),
    ("int4:064:correlated", "int4", "64:correlated", "int4:64:correlated", False),
    ("rotate64+int3:32/256:correlated", "int3", "32/256:correlated", "rotate64+int3:32/256:correlated", False),
    (
        "int4:16/256:nonuniform:correlated",
        "int4",
        "16/256:nonuniform:correlated",
        "int4:16/256:nonuniform:correlated",
        False,
    ),
    ("sign", "sign", "1024", "sign:1024", False),
    ("topk:0.01", "topk", "0.01", "topk:0.01", False),
    ("topk:1e-2", "topk", "0.01", "topk:0.01", False),
    ("topk:1", "topk", "1", "topk:1", False),
    ("threshold:0.001", "threshold", "0.001", "threshold:0.001", False),
    ("rowsparse:4096", "rowsparse", "4096", "rowsparse:4096", True),
    ("2:4", "2:4", "", "2:4", False),
]


@pytest.mark.parametrize("name", [name for name, *_ in KNOWN])
def test_a_login_node_lists_the_codecs_of_a_gpu(name: str) -> None:
    assert parse(name).on_gpu == isinstance(get_codec(name), (Compiled, Identity))


def test_every_family_is_listed() -> None:
    kernels = {"none", *library.FAMILIES} - {"grouped", "mx"} | {"int3", "int2", "mxfp8", "mxfp6", "mxfp4"}
    assert {family for _, family, *_ in KNOWN} == set(FAMILIES) == kernels


@pytest.mark.parametrize(("name", "family", "parameter", "canonical", "lossless"), KNOWN)
def test_known_names(name: str, family: str, parameter: str, canonical: str, lossless: bool) -> None:
    spec = parse(name)
    assert (spec.family, spec.parameter, spec.name, spec.lossless) == (family, parameter, canonical, lossless)
    assert parse(spec.name) == spec


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        *[(name, "zfp:R with R from 4 to 32, mpc, mpc:D") for name in ("", "None", "lz4", "$(zfp:8)", "4:2", ":8")],
        *[
            (name, "zfp:R with R from 4 to 32")
            for name in ("zfp", "zfp:", "zfp:3", "zfp:33", "zfp:8.5", "zfp:-8", "zfp:8 ", "zfp:8\n", "zfp:٨")
        ],
        ("zfp:1000000000000", "zfp:R"),
        *[(name, "mpc:D with D from 1 to 32") for name in ("mpc:0", "mpc:33", "mpc:")],
        ("none:1", "none"),
        ("xpk:2", "xpk"),
        *[(name, "B a power of two from 32 to 1024") for name in ("int8:", "int8:48", "int8:2048", "int8:64:up")],
        ("int8:64:", "int8:B:stochastic"),
        *[(name, "int8:B:correlated") for name in ("int8:64:stochastic:correlated", "int8:correlated")],
        *[(f"{name}:correlated", name) for name in ("fp16", "sign", "nvfp4")],
        *[
            (name, "int4:B/256 with B 16 or 32")
            for name in (
                *("int4:64/256", "int4:32/128", "int4:32/256:stochastic:nonuniform"),
                *("int4:32/256:stochastic:correlated", "int4:32/256:correlated:nonuniform", "int4:32/256:correlate"),
            )
        ],
        *[(name, "int3:B/256") for name in ("int3:32", "int3:", "int3:16/256:", "int3:/256", "int3:stochastic")],
        *[(name, "int2:B/256") for name in ("int2:16", "int2:16/256:nonuniform")],
        ("int8:32/256", "int8:B"),
        *[(name, "mxfp8:e4m3 and mxfp8:e5m2") for name in ("mxfp8:", "mxfp8:e2m3", "mxfp8:rceil", "mxfp8:e4m3:up")],
        *[(name, "mxfp6:e2m3 and mxfp6:e3m2") for name in ("mxfp6:e4m3", "mxfp6:e2m3:", "mxfp6:floor")],
        *[(name, "mxfp4:even and mxfp4:rceil") for name in ("mxfp4:", "mxfp4:e2m1", "mxfp4:up")],
        ("nvfp4:32", "nvfp4"),
        *[
            (f"{stage}+int8", "rotateN+CODEC or hadamardN+CODEC with N a power")
            for stage in ("rotate", "rotate8", "rotate48", "hadamard2048")
        ],
        *[
            (f"rotate64+{codec}", "rotateN+CODEC or hadamardN+CODEC with N")
            for codec in ("", "zfp:8", "mpc", "rotate64+int8")
        ],
        ("rotate64+int8:33", "B a power of two"),
        ("int8::stochastic", "int8:B:stochastic"),
        ("sign:16", "sign:B"),
        *[(name, "0 < F <= 1") for name in ("topk", "topk:0", "topk:1.5", "topk:nan", "topk:-0.1", "topk:0x1")],
        *[(name, "T > 0") for name in ("threshold", "threshold:0", "threshold:inf", "threshold:1e99")],
        *[(name, "W values per row") for name in ("rowsparse", "rowsparse:0", "rowsparse:8.5")],
    ],
)
def test_unknown_names(name: str, remedy: str) -> None:
    with pytest.raises(ValueError, match="known") as caught:
        parse(name)
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [None, 8, ["mpc"], 1.5])
def test_names_that_are_not_strings(name: object) -> None:
    with pytest.raises(ValueError, match="unknown codec"):
        parse(name)  # type: ignore[arg-type]


def test_a_login_node_needs_no_numpy() -> None:
    code = (
        "import sys, hpcbench.codecs.spec\n"
        "print([m for m in ('numpy', 'torch', 'mpi4py', 'cupy', 'ctypes') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
