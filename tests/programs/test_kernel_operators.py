"""Tests of the codecs as PyTorch operators: schemas, fake implementations, and GPU kernels on an emulated device."""

import sys
from pathlib import Path

import pytest
import torch
from collective_ranks import FIXED, values
from torch._subclasses import FakeTensorMode
from torch.library import opcheck

sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
from emulated_device import EmulatedDevice

from hpcbench.codecs.registry import get_codec
from hpcbench.programs.kernel_operators import (
    DeviceKernels,
    HostKernels,
    add_encode,
    count_wire_bytes,
    decode,
    encode,
    has_kernels,
)
from hpcbench.programs.tensors import array

N = 3000
F32 = torch.float32


def new_wire(codec: str, dtype: torch.dtype, n: int = N) -> torch.Tensor:
    return torch.zeros(count_wire_bytes(codec, n, dtype), dtype=torch.uint8)


@pytest.mark.parametrize("name", ["encode", "decode", "add_encode"])
def test_pytorch_accepts_the_operators(name: str) -> None:
    x, wire = values(0, N), new_wire("int8:256", F32)
    arguments = {
        "encode": (x, wire, torch.zeros(N), "int8:256", F32, 1),
        "decode": (wire, x, "int8:256", F32, True),
        "add_encode": (wire, x, wire.clone(), "int8:256", 1),
    }[name]
    checks = opcheck(getattr(torch.ops.hpcbench, name).default, arguments)
    assert set(checks.values()) == {"SUCCESS"}


def test_fake_tensors_have_the_sizes_of_real_ones() -> None:
    with FakeTensorMode():
        x, wire = torch.empty(N), torch.empty(count_wire_bytes("int8:256", N, F32), dtype=torch.uint8)
        encode(x, wire, None, "int8:256", F32, 0)
        decode(wire, x, "int8:256", F32, False)
        add_encode(wire, x, torch.empty_like(wire), "int8:256", 0)
        with pytest.raises(ValueError, match="int8:256 needs 3048 bytes, but the wire has 3047"):
            encode(x, wire[1:], None, "int8:256", F32, 0)
        with pytest.raises(ValueError, match="3000 values of int8:256 have 3048 bytes, not 3047"):
            decode(wire[1:], x, "int8:256", F32, False)


def test_a_compiled_graph_contains_the_operators() -> None:
    nbytes = count_wire_bytes("int8:256", N, F32)

    def work(x: torch.Tensor) -> torch.Tensor:
        wire = torch.empty(nbytes, dtype=torch.uint8)
        encode(x * 2, wire, None, "int8:256", F32, 0)
        out = torch.empty(N)
        decode(wire, out, "int8:256", F32, False)
        return out + 1

    compiled = torch.compile(work, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(values(0, N)), work(values(0, N)))


@pytest.mark.parametrize("codec", ["none", "bf16", "int8:256", "int4:32", "fp8e4m3", "zfp:8", "sign:1024"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_kernels_of_a_gpu_make_the_bytes_and_values_of_the_host(codec: str, dtype: torch.dtype) -> None:
    device = DeviceKernels(EmulatedDevice(), lambda tensor: 0, array)
    host = HostKernels()
    for source in (values(1, N), values(1, N).to(dtype)):
        wires, residuals = ([new_wire(codec, dtype) for _ in range(2)] for _ in range(2))
        residuals = [values(2, N) * 1e-3 for _ in range(2)]
        for kernels, wire, residual in zip((host, device), wires, residuals, strict=True):
            kernels.encode(source, wire, None, codec, dtype, 5)
            kernels.encode(source, wire, residual, codec, dtype, 5)
        assert torch.equal(*wires)
        assert torch.equal(*residuals)
        for adds in (False, True):
            for target in (torch.float32, dtype):
                outs = [values(3, N).to(target) for _ in range(2)]
                for kernels, out in zip((host, device), outs, strict=True):
                    kernels.decode(wires[0], out, codec, dtype, adds)
                assert torch.equal(*(out.view(torch.uint8) for out in outs)), (adds, target)
    local, sums = values(4, N).to(dtype), [new_wire(codec, dtype) for _ in range(2)]
    for kernels, total in zip((host, device), sums, strict=True):
        kernels.add_encode(wires[0], local, total, codec, 5)
    assert torch.equal(*sums)


def test_one_fused_kernel_has_the_bits_of_three() -> None:
    for codec in FIXED:
        if codec.endswith("stochastic"):
            continue
        x, local = values(1, N), values(2, N)
        wire, fused, separate = (new_wire(codec, F32) for _ in range(3))
        encode(x, wire, None, codec, F32, 0)
        add_encode(wire, local, fused, codec, 0)
        decode(wire, local, codec, F32, True)
        encode(local, separate, None, codec, F32, 0)
        assert torch.equal(fused, separate), codec


def test_codecs_of_variable_size_are_not_operators_of_a_carrier() -> None:
    assert not any(has_kernels(get_codec(name)) for name in ("xpk", "mpc", "threshold:0.5", "rowsparse:64"))
    assert all(has_kernels(get_codec(name)) for name in FIXED)
