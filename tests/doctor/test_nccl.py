"""Tests of the doctor's NCCL check, with faked ranks and GPUs."""

from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hpcbench.batch.schedulers.attempt import CommandOutcome
from hpcbench.batch.sites.site import Site
from hpcbench.doctor import nccl
from hpcbench.doctor.check import Health
from hpcbench.doctor.nccl_probe import describe_ways, measure

OVER_IB = """
n1:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.1<0>
n1:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
n1:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
"""
WITHIN = (
    "n1:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.0.2<0>\nNCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
)


def site(**changes: Any) -> Site:
    data = {
        "site": "here",
        "scheduler": {"kind": "local"},
        "launcher": {"kind": "mpich"},
        "node": {"gpus": 2, "cores": 8},
        "device": "cuda",
        "network": {"description": "n", "bandwidth_gbit": 200.0},
        "checked": "never",
    }
    return Site.model_validate({**data, **changes})


def check(
    monkeypatch: pytest.MonkeyPatch, out: str = "", err: str = "", status: int | None = 0, **changes: Any
) -> dict[str, Any]:
    """Run the check with ranks that print `out` and `err`."""
    started = []

    @contextmanager
    def command(site: Site, ranks: int) -> Any:
        yield ["mpiexec", "-n", str(ranks), "python3"]

    def answer(argv: list[str], **settings: Any) -> CommandOutcome:
        started.append(argv)
        return CommandOutcome("mpiexec", True, status, out, err)

    monkeypatch.setattr(nccl, "rank_command", command)
    monkeypatch.setattr(nccl, "attempt", answer)
    checks = nccl.check_nccl(site(**changes), run=False)
    assert not started or started == [["mpiexec", "-n", "2", "python3", "-m", "hpcbench.doctor.nccl_probe"]]
    return {result.name: result for result in checks}


def printed(**facts: str) -> str:
    return "".join(f"nccl {name}={value}\n" for name, value in facts.items())


def test_all_is_well_over_a_fast_link(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"version": "2.27.5", **describe_ways(OVER_IB), "rate": "21e9"}
    checks = check(monkeypatch, printed(**facts), transport="nccl")
    assert {result.health for result in checks.values()} == {Health.OK}
    assert checks["NCCL"].needed
    assert checks["NCCL interface"].fact.startswith("[0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.1<0>; two ranks exchange")
    assert checks["NCCL all-reduce"].fact == "21 GB/s, two ranks, 64 MiB: 84% of the link's 200 Gbit/s"


def test_a_slow_link_and_staged_messages_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"version": "2.27.5", **describe_ways(OVER_IB.replace("/GDRDMA", "")), "rate": "2e9"}
    checks = check(monkeypatch, printed(**facts))
    assert checks["GPUDirect RDMA"].health is Health.MISSING
    assert checks["NCCL all-reduce"].health is Health.MISSING
    assert "8% of the link's 200 Gbit/s" in checks["NCCL all-reduce"].fact


def test_sockets_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    log = WITHIN.replace("P2P/CUMEM", "NET/Socket/0")
    checks = check(monkeypatch, printed(version="2.27.5", **describe_ways(log), rate="1e9", shared="yes"))
    assert "messages use sockets" in checks["NCCL interface"].remedy
    assert "share one GPU" in checks["NCCL all-reduce"].fact
    assert checks["NCCL all-reduce"].health is Health.UNKNOWN


def test_ranks_of_a_node_have_no_nominal_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = check(monkeypatch, printed(version="2.32.3", **describe_ways(WITHIN), rate="2.5e11"))
    assert checks["NCCL all-reduce"].fact == "250 GB/s, two ranks, 64 MiB, within a node"
    assert checks["GPUDirect RDMA"].health is Health.UNKNOWN
    assert "via P2P/CUMEM" in checks["NCCL interface"].fact


@pytest.mark.parametrize(
    ("settings", "health", "fact"),
    [
        (
            {"err": "hpcbench.errors.UserError: train.transport: CuPy does not find NCCL"},
            Health.MISSING,
            "CuPy does not find NCCL",
        ),
        ({"status": None}, Health.UNKNOWN, "nccl_probe"),
        ({"out": printed(version="2.19.3", rate="1e9")}, Health.MISSING, "2.19.3, older than 2.27"),
    ],
)
def test_what_is_missing(monkeypatch: pytest.MonkeyPatch, settings: Any, health: Health, fact: str) -> None:
    result = check(monkeypatch, **settings, transport="nccl")["NCCL"]
    assert result.health is health and fact in result.fact and result.remedy
    assert result.failed


def test_sites_without_gpus_and_login_nodes_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(monkeypatch, device="cpu") == {}
    slurm = check(monkeypatch, scheduler={"kind": "slurm"}, launcher={"kind": "srun"})
    assert slurm["NCCL"].health is Health.UNKNOWN and "login node" in slurm["NCCL"].fact


def test_the_all_reduce_is_timed_by_events() -> None:
    class Event:
        now = 0

        def __init__(self) -> None:
            self.time, self.waited = Event.now, False

        def wait(self) -> None:
            self.waited = True

        def since(self, earlier: "Event") -> float:
            assert self.waited
            return float(self.time - earlier.time)

    class Buffer:
        size = 16

        def view(self, dtype: Any) -> "Buffer":
            return self

    class Device:
        calls = 0

        def new_stream(self) -> int:
            return 1

        def memory(self, nbytes: int) -> Buffer:
            assert nbytes == 64
            return Buffer()

        def copy(self, target: Any, source: np.ndarray, stream: int) -> None:
            assert source.size == 16

        def mark(self, stream: int) -> Event:
            return Event()

        def all_reduce(self, buf: Any, op: Any, stream: int) -> None:
            self.calls += 1
            Event.now += 100 if self.calls <= 3 else self.calls

    device = Device()
    assert measure(device, device, 64, 5) == 6, "the median of 4 to 8, without the first three calls"
