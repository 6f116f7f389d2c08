"""Tests of messages for GPU users, with a fake GPU: detected backends, rejected settings, and missing packages."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hpcbench.contract.call_treatment import CallKind
from hpcbench.contract.nccl_fit import explain_exact_calls
from hpcbench.contract.traffic import Algorithm
from hpcbench.contract.treatment import Treatment
from hpcbench.doctor import probe
from hpcbench.programs import backends, kernel_operators
from hpcbench.programs.account import Account
from hpcbench.programs.exact import explain, list_lossy_remedies, state_cuda
from hpcbench.programs.group_carriers import GroupCarriers
from hpcbench.study import presets
from hpcbench.study.find_scheme import NOTHING, find_scheme

GPU = torch.device("cuda", 0)
CLAIMED = """\
import sys
import torch
import torch.distributed as dist
from hpcbench.programs import backends
backends.find_backend = lambda group, device: "nccl"
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
for _ in range(3):
    net(torch.randn(4, 256)).square().mean().backward()
dist.barrier()
dist.destroy_process_group()
"""
"""A program whose groups report the backend NCCL, but communicate over gloo."""


class Backend:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


class Wrapper(Backend):
    """A torchcomms backend, which reports the name of the wrapped backend."""


Wrapper.__module__ = "torchcomms._comms"


def group(backend: Backend | None) -> Any:
    def get(device: torch.device) -> Backend:
        if backend is None:
            raise RuntimeError(f"No backend type associated with device type {device.type}")
        return backend

    return SimpleNamespace(_get_backend=get, group_desc="mesh_dp", rank=lambda: 0)


@pytest.mark.parametrize(
    ("backend", "name"),
    [(Backend("nccl"), "nccl"), (Backend("gloo"), "gloo"), (Wrapper("nccl"), "torchcomms"), (None, "")],
)
def test_the_backend_of_a_group_is_found(backend: Backend | None, name: str) -> None:
    assert backends.find_backend(group(backend), GPU) == name
    assert backends.is_streamed(group(backend), GPU, through_host=False) == (name == "nccl")
    assert not backends.is_streamed(group(backend), GPU, through_host=True)


@pytest.mark.parametrize(
    ("backend", "through_host", "why"),
    [
        (Backend("nccl"), False, ""),
        (Backend("nccl"), True, ""),
        (Backend("gloo"), False, "device cuda"),
        (Backend("gloo"), True, ""),
        (Wrapper("nccl"), False, "torchcomms"),
        (None, False, "device cuda"),
    ],
)
def test_calls_without_a_carrier_have_a_reason(backend: Backend | None, through_host: bool, why: str) -> None:
    carriers = GroupCarriers(group(backend), Account(), through_host=through_host)
    rule = Treatment("int8:256", Algorithm.ENCODED)
    assert carriers.find_hindrance(GPU, CallKind.ALL_REDUCE, rule, planned=True) == why


@pytest.mark.parametrize(
    ("call", "rule", "why"),
    [
        (CallKind.ALL_REDUCE, Treatment("int8:256", Algorithm.ENCODED), ""),
        (CallKind.ALL_REDUCE, Treatment("none", Algorithm.TWO_SHOT), ""),
        (CallKind.ALL_TO_ALL, Treatment("fp8e4m3", Algorithm.ENCODED), ""),
        (CallKind.ALL_REDUCE, Treatment("xpk", Algorithm.ENCODED), backends.SIZE),
        (CallKind.REDUCE_SCATTER, Treatment("mpc", Algorithm.ENCODED), backends.SIZE),
        (CallKind.ALL_REDUCE, Treatment("int8:256", Algorithm.DOUBLING), backends.ALGORITHM),
        (CallKind.ALL_REDUCE, Treatment("int8:256", Algorithm.AUTO), backends.AUTO),
        (CallKind.ALL_REDUCE, Treatment("int8:256", Algorithm.AUTO, between_nodes=True), backends.BETWEEN),
        (CallKind.MESSAGE, Treatment("int8:256", Algorithm.ENCODED), backends.MESSAGE),
    ],
)
def test_refusals_over_nccl(call: CallKind, rule: Treatment, why: str) -> None:
    assert backends.find_refusal(call, rule) == why
    assert not why or explain(why) != why  # the message must explain the reason in a sentence


@pytest.mark.parametrize("name", [name for name in presets.schemes() if "{" not in name])
def test_the_dry_run_names_the_schemes_that_the_carrier_refuses(name: str) -> None:
    scheme, _ = find_scheme(name, {}, NOTHING, "test")
    treatments = [
        Treatment(rule.codec, Algorithm(scheme.algorithm), between_nodes=rule.between_nodes)
        for rule in scheme.all_rules
        if rule.codec != "none"
    ]
    if scheme.algorithm != "native" and treatments:
        refused = any(backends.find_refusal(CallKind.ALL_REDUCE, treatment) for treatment in treatments)
        assert bool(explain_exact_calls(scheme)) == refused


def test_bytes_on_gpus_are_named_by_their_reason() -> None:
    rows = [
        {"why": "device cuda", "call_bytes": 2_000_000},
        {"why": "torchcomms", "call_bytes": 1_000_000},
        {"why": "small", "call_bytes": 5},
    ]
    assert state_cuda(rows) == (
        "tensors on GPUs were sent exactly: 2.000 MB were on a GPU, in a group without NCCL; "
        "1.000 MB were sent by torchcomms, but only c10d's own NCCL is supported"
    )
    assert state_cuda(rows[2:]) is None


def test_calls_that_a_groups_file_would_release_are_named() -> None:
    rows = [
        {"why": "parameters", "call_bytes": 6_000_000},
        {"why": "", "call_bytes": 3_500_000},
        {"why": "outside backward", "call_bytes": 500_000},
    ]
    assert list_lossy_remedies(rows) == [
        "6.000 of 10.000 MB were sent exactly (parameters): to encode them, give --groups FILE with "
        "lossy: [parameters], if checkpoints may be lossy"
    ]
    assert list_lossy_remedies(rows[1:2]) == list_lossy_remedies([]) == []


@pytest.fixture
def faked_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda number: nullcontext())
    monkeypatch.setattr(backends, "SecondGroup", lambda group: SimpleNamespace(topology=lambda: SimpleNamespace()))
    monkeypatch.setattr(backends, "StreamedGroup", lambda *arguments: arguments)
    kernel_operators.device_kernels.cache_clear()


def test_a_missing_cupy_is_an_error_before_the_first_message(
    faked_gpu: None, need: Callable[[str | None], None]
) -> None:
    try:
        import cupy
    except ImportError:
        cupy = None
    need("CuPy is here" if cupy else None)
    with pytest.raises(
        RuntimeError, match=r"this rank cannot encode calls on its GPU: codecs on a GPU need CuPy .*cupy-cuda13x"
    ):
        backends.make_streamed_group(group(Backend("nccl")), Account(), GPU)


def test_the_first_rank_warns_that_the_way_is_experimental(
    faked_gpu: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backends, "device_kernels", lambda number: None)
    with caplog.at_level(logging.WARNING):
        name, rank, *_ = backends.make_streamed_group(group(Backend("nccl")), Account(), GPU)  # type: ignore[misc]
    assert (name, rank) == ("group mesh_dp", 0)
    assert "are sent over NCCL. This is experimental and has not been tested on a GPU" in caplog.text


@pytest.mark.parametrize(
    ("cuda", "nccl", "fact"),
    [
        ("13.0", True, "2.15.0, CUDA 13.0, sees 4 GPUs, NCCL 2.28.3"),
        ("12.8", False, "2.15.0, CUDA 12.8, sees 4 GPUs, without NCCL"),
        (None, False, "2.15.0, built without CUDA"),
    ],
)
def test_the_doctor_names_the_nccl_of_pytorch(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, nccl: bool, fact: str
) -> None:
    fake: Any = ModuleType("torch")
    fake.__version__, fake.version = "2.15.0", SimpleNamespace(cuda=cuda)
    fake.distributed = SimpleNamespace(is_available=lambda: True, is_nccl_available=lambda: nccl)
    fake.cuda = SimpleNamespace(device_count=lambda: 4, nccl=SimpleNamespace(version=lambda: (2, 28, 3)))
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert probe._torch() == ("ok", fact, "")


def test_the_doctor_names_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = ModuleType("torch")
    fake.__version__, fake.version = "2.15.0", SimpleNamespace(cuda=None, hip="7.0")
    fake.cuda = SimpleNamespace(device_count=lambda: 8)
    monkeypatch.setitem(sys.modules, "torch", fake)
    health, fact, _ = probe._torch()
    assert health == "ok" and fact.startswith("2.15.0, ROCm 7.0, sees 8 GPUs, on which hpcbench's kernels do not run")


def run(directory: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    program, log = directory / "train.py", directory / "log.jsonl"
    program.write_text(CLAIMED, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
    command = [sys.executable, "-m", "hpcbench", "run", *options, "--log", str(log), "--", *torchrun]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    return done, [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("options", "status", "shown"),
    [
        (["--scheme", "naive-int8"], 0, r"all-reduce +float32 +int8:256 +6 "),
        (["--scheme", "naive-int8", "--dry"], 0, r"all-reduce +float32 +would be int8:256 +6 "),
        (
            ["--scheme", "naive-mpc"],
            1,
            r"the codec's messages vary in size, but NCCL requires a fixed size +6 .*int8:256",
        ),
    ],
)
def test_a_run_goes_the_whole_way(tmp_path: Path, options: list[str], status: int, shown: str) -> None:
    done, events = run(tmp_path, *options)
    assert done.returncode == status, done.stderr[-3000:]
    assert re.search(shown, done.stderr), done.stderr[-3000:]
    rows = next(event["rows"] for event in events if event["event"] == "calls")
    (gradients,) = [row for row in rows if row["call"] == "all-reduce" and row["call_bytes"] > 100_000]
    assert (gradients["codec"] == "int8:256") == (options == ["--scheme", "naive-int8"])
    if gradients["codec"]:
        assert 0.25 < gradients["wire_bytes"] / gradients["message_bytes"] < 0.27
