"""Tests that groups over NCCL, on emulated devices, give the same results and byte counts as MPI."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.spec import FAMILIES
from hpcbench.comm import nccl
from hpcbench.comm.accelerator import DeviceArray
from hpcbench.contract.layout import Layout
from hpcbench.contract.nccl_fit import VARIABLE, find_nccl_misfit
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Train
from hpcbench.errors import UserError

WORKER = Path(__file__).with_name("gpu_worker.py")


ROUNDING = {None: 1e-6, "float32": 1e-6, "float16": 4e-3, "bfloat16": 3e-2}
"""Largest relative difference between sums of four values in different orders, keyed by message dtype."""


def sums_in_its_own_order(result: dict[str, Any]) -> bool:
    """Return whether each piece is reduced separately, in a summation order that the library determines."""
    return result["operation"] == "reduce_scatter" and result["algorithm"] == "native"


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_every_operation_gives_the_bits_and_bytes_of_mpi(mpi_results: Any, ranks: int) -> None:
    results = mpi_results(ranks, WORKER, "over_nccl")
    assert len(results) == 151
    assert [r for r in results if not r["same counts"]] == []
    assert [r for r in results if not r["same"] and (ranks == 2 or not sums_in_its_own_order(r))] == []
    assert [r for r in results if not r["off"] <= ROUNDING[r["sent"]]] == []
    for r in results:
        assert not any(r["to host"]) and not any(r["to device"]), r
        encodes = r["algorithm"] not in ("native", *(["hierarchical"] if ranks == 2 else []))
        if r["operation"] == "all_reduce":
            assert r["timed"] == encodes, r


def run(transport: str = "nccl", device: str = "cuda", **changes: Any) -> Any:
    scheme = NamedScheme.model_validate(
        {"name": "mine", "algorithm": "encoded", "default": "int8:256", "rules": [], **changes.pop("scheme", {})}
    )
    train = Train(steps=20, global_batch=8, transport=transport, **changes.pop("train", {}))  # type: ignore[arg-type]
    return find_nccl_misfit(train, Layout(**changes), scheme, device)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "cpu"}, "the device is cpu: use mpi, or a site with device cuda"),
        ({"pp": 2, "train": {"schedule": "pipedream"}}, "schedule pipedream sends headers"),
        ({"dp": 2, "train": {"sync": "ssp"}}, "the parameter server of sync ssp receives from any rank"),
        ({"train": {"offload": True}}, "set offload to false"),
        ({"scheme": {"algorithm": "auto"}}, "algorithm auto of scheme mine"),
        ({"scheme": {"default": "mpc"}}, "codec mpc of scheme mine the sizes vary: use mpi, or another codec"),
        ({"scheme": {"rules": [{"dimension": "DP", "codec": "xpk"}]}}, "codec xpk of scheme mine the sizes vary"),
    ],
)
def test_what_nccl_does_not_carry_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    misfit = run(**changes)
    assert misfit.field == ("train", "transport")
    assert message in misfit.problem
    assert run(transport="mpi", **changes) is None


def test_other_runs_are_accepted() -> None:
    assert run() is None
    assert run(scheme={"algorithm": "native", "default": "none"}, train={"zero": 3}, dp=2, tp=2) is None


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.on_gpu])
def test_families_of_variable_size_are_known(family: str) -> None:
    parameter = {"zfp": ":8", "topk": ":0.1", "threshold": ":8", "rowsparse": ":8"}.get(family, "")
    assert get_codec(family + parameter).fixed_size == (family not in VARIABLE)


class FakeNccl:
    """The module `cupy.cuda.nccl` with the signatures of CuPy 14.2. The fake records its calls."""

    available = True

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        calls = self.calls

        class NcclCommunicator:
            def __init__(self, ndev: int, commId: Any, rank: int) -> None:  # noqa: N803
                calls.append(("init", ndev, commId, rank))

            def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):  # type: ignore[no-untyped-def]  # noqa: N802
                calls.append(("allReduce", sendbuf, recvbuf, count, datatype, op, stream))

            def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):  # type: ignore[no-untyped-def]  # noqa: N802
                calls.append(("reduceScatter", sendbuf, recvbuf, recvcount, datatype, op, stream))

            def allGather(self, sendbuf, recvbuf, count, datatype, stream):  # type: ignore[no-untyped-def]  # noqa: N802
                calls.append(("allGather", sendbuf, recvbuf, count, datatype, stream))

            def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):  # type: ignore[no-untyped-def]
                calls.append(("broadcast", sendbuff, recvbuff, count, datatype, root, stream))

            def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):  # type: ignore[no-untyped-def]
                calls.append(("reduce", sendbuf, recvbuf, count, datatype, op, root, stream))

            def send(self, sendbuf, count, datatype, peer, stream):  # type: ignore[no-untyped-def]
                calls.append(("send", sendbuf, count, datatype, peer, stream))

            def recv(self, recvbuf, count, datatype, peer, stream):  # type: ignore[no-untyped-def]
                calls.append(("recv", recvbuf, count, datatype, peer, stream))

            def destroy(self) -> None:
                calls.append(("destroy",))

        self.NcclCommunicator = NcclCommunicator

    def groupStart(self) -> None:  # noqa: N802
        self.calls.append(("groupStart",))

    def groupEnd(self) -> None:  # noqa: N802
        self.calls.append(("groupEnd",))

    def get_unique_id(self) -> tuple[int, ...]:
        return (1, 2, 3)


def test_calls_have_the_arguments_that_cupy_documents() -> None:
    fake = FakeNccl()
    communicator = nccl.CupyCommunicator(fake, (1, 2, 3), 1, 4)
    a, b = (DeviceArray(None, pointer, 12, np.dtype(np.float32)) for pointer in (4096, 8192))
    with communicator.group():
        communicator.send(a, 3, 77)
        communicator.receive(b, 2, 77)
    communicator.all_reduce(a, nccl.MPI.MAX, 77)
    communicator.reduce_scatter(a, b[:3], 77)
    communicator.all_gather(a[:3], b, 77)
    communicator.broadcast(a, 2, 77)
    communicator.reduce(a, b, 1, 77)
    communicator.reduce(a, b, 0, 77)
    communicator.free()
    assert fake.calls == [
        ("init", 4, (1, 2, 3), 1),
        ("groupStart",),
        ("send", 4096, 48, 1, 3, 77),
        ("recv", 8192, 48, 1, 2, 77),
        ("groupEnd",),
        ("allReduce", 4096, 4096, 12, 7, 2, 77),
        ("reduceScatter", 4096, 8192, 3, 7, 0, 77),
        ("allGather", 4096, 8192, 3, 7, 77),
        ("broadcast", 4096, 4096, 12, 7, 2, 77),
        ("reduce", 4096, 8192, 12, 7, 0, 1, 77),
        ("reduce", 4096, 0, 12, 7, 0, 0, 77),
        ("destroy",),
    ]


def test_a_missing_nccl_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace()))
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(nccl=SimpleNamespace(available=False)))
    with pytest.raises(UserError, match="CuPy does not find NCCL: install nvidia-nccl-cu12"):
        nccl.load()
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    with pytest.raises(UserError, match="NCCL requires CuPy, which cannot be imported"):
        nccl.load()


def test_an_nccl_whose_communicators_may_deadlock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer versions run the operations of all communicators in the order of the host's calls."""
    monkeypatch.delenv("NCCL_LAUNCH_ORDER_IMPLICIT", raising=False)
    for number in (22105, 22604):
        fake = FakeNccl()
        fake.get_version = lambda number=number: number  # type: ignore[attr-defined]
        monkeypatch.setattr(nccl, "load", lambda fake=fake: fake)
        if number < 22600:
            with pytest.raises(
                UserError,
                match=r"NCCL 2.21.5, operations of several communicators may deadlock: install NCCL 2.26.0 or later",
            ):
                nccl.connect(nccl.MPI.COMM_SELF)
            assert "NCCL_LAUNCH_ORDER_IMPLICIT" not in os.environ
        else:
            assert nccl.connect(nccl.MPI.COMM_SELF).size == 1
            assert os.environ["NCCL_LAUNCH_ORDER_IMPLICIT"] == "1"


@pytest.mark.parametrize(("number", "text"), [(22705, "2.27.5"), (2708, "2.7.8"), (23203, "2.32.3")])
def test_versions_are_written_as_nvidia_writes_them(number: int, text: str) -> None:
    assert nccl.version_text(number) == text
