"""Tests of calls on an emulated device.

Ranks are threads, and a device runs its work only when something waits for it.
"""

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_gloo_carrier import on_ranks

sys.path.insert(0, str(Path(__file__).parents[1] / "comm"))
from emulated_accelerator import LazyAccelerator, OnDevice
from emulated_device import EmulatedDevice

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.execute import STAGES, Call, carry_out
from hpcbench.comm.memory import Tally
from hpcbench.comm.places import HostPlace, Places
from hpcbench.comm.plan import Operation
from hpcbench.comm.planner import Request, plan
from hpcbench.comm.scratch import Scratch
from hpcbench.comm.topology import Topology
from hpcbench.comm.vector import InPlace
from hpcbench.contract.traffic import Algorithm
from hpcbench.programs.device_calls import DeviceCalls, Prepared
from hpcbench.programs.gloo_carrier import GlooCarrier, drive

RANKS, N = 2, 4096
_KERNELS = threading.Lock()
CODECS = ["none", "int8:256", "zfp:8"]


@pytest.fixture(autouse=True)
def one_kernel_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one kernel at a time, because ranks are threads and the GPU emulation supports only one kernel."""
    real = EmulatedDevice.launch

    def launch(device: EmulatedDevice, *arguments: Any) -> None:
        with _KERNELS:
            real(device, *arguments)

    monkeypatch.setattr(EmulatedDevice, "launch", launch)


def values(rank: int, n: int = N) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(rank))


def calls(rank: int) -> DeviceCalls:
    device = LazyAccelerator()
    return DeviceCalls(rank, RANKS, Places(device_of=lambda x: device), lambda t: OnDevice(t.numpy()))


def play(carrier: GlooCarrier, codec: str, operation: Operation, n: int, dtype: Any, ready: Any) -> None:
    """Execute a plan on device values or on a host array."""
    coder, kind = get_codec(codec), np.dtype(dtype)
    laid = plan(Request(operation, n, kind, Topology.flat(RANKS), coder, Algorithm.ENCODED))
    place, vector = (
        (ready.place, ready.vector) if isinstance(ready, Prepared) else (HostPlace(Scratch()), InPlace(ready))
    )
    call = Call(carrier, Topology.flat(RANKS), place, coder, kind, vector, 7, None, Tally())
    drive(carry_out(call, laid.steps(carrier.rank, k), k * STAGES) for k in range(len(laid.slices)))
    if isinstance(ready, Prepared):
        ready.finish()


@pytest.mark.parametrize("codec", CODECS)
def test_a_sum_on_a_device_has_the_bits_of_the_host(codec: str) -> None:
    on_device = [values(rank) for rank in range(RANKS)]
    on_host = [values(rank).numpy() for rank in range(RANKS)]

    def work(rank: int, carrier: GlooCarrier) -> None:
        x = on_device[rank]
        play(carrier, codec, Operation.ALL_REDUCE, N, np.float32, calls(rank).total(x, x, average=False))
        play(carrier, codec, Operation.ALL_REDUCE, N, np.float32, on_host[rank])

    on_ranks(RANKS, work)
    assert all(np.array_equal(x.numpy(), on_host[0]) for x in on_device)
    assert np.array_equal(on_host[0], on_host[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_average_of_a_scattered_sum(dtype: torch.dtype) -> None:
    every = [values(rank).to(dtype) for rank in range(RANKS)]
    pieces = [torch.empty(N // RANKS, dtype=dtype) for _ in range(RANKS)]

    def work(rank: int, carrier: GlooCarrier) -> None:
        ready = calls(rank).total(pieces[rank], every[rank], average=True)
        play(carrier, "int8:256", Operation.REDUCE_SCATTER, N, np.float32, ready)

    on_ranks(RANKS, work)
    exact = torch.stack([x.float() for x in every]).mean(0)
    assert float((torch.cat(pieces).float() - exact).abs().max()) < 0.03
    assert all(torch.equal(x, values(rank).to(dtype)) for rank, x in enumerate(every))  # sources are unmodified


def test_a_gather_into_a_tensor_of_any_layout() -> None:
    wholes = [torch.empty(N // 64, 64).t() for _ in range(RANKS)]
    parts = [values(rank, N // RANKS) for rank in range(RANKS)]

    def work(rank: int, carrier: GlooCarrier) -> None:
        ready = calls(rank).gathered(wholes[rank], parts[rank])
        play(carrier, "zfp:8", Operation.ALL_GATHER, N, np.float32, ready)

    on_ranks(RANKS, work)
    assert torch.equal(wholes[0], wholes[1])
    assert float((wholes[0].reshape(-1) - torch.cat(parts)).abs().max()) < 0.5
