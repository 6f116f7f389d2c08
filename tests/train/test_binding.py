"""Tests that the placement of ranks is checked: on cores with real ranks, on nodes and GPUs with fake placements."""

import json
import os
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hpcbench.contract.run import RankShape
from hpcbench.errors import UserError
from hpcbench.train import binding

WORKER = Path(__file__).with_name("binding_worker.py")
CPU = {"nodes": 1, "ranks_per_node": 2, "cores_per_rank": 1, "gpus_per_rank": "0", "visibility": "one"}


def on_ranks(mpi_run, bind, shape, cores=None):
    done = mpi_run(2, WORKER, json.dumps(shape), json.dumps(cores), bind=bind)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---------------------------------------------------------------- real ranks


def test_ranks_that_the_launcher_binds_are_recorded_and_pass(mpi_run):
    bindings = on_ranks(mpi_run, "core:1", CPU)
    assert bindings["outcome"] == []
    first, second = bindings["world"]
    assert len(first["cores"]) == len(second["cores"]) == 1 and first["cores"] != second["cores"]
    assert [rank["core_ranges"] for rank in (first, second)] == [str(rank["cores"][0]) for rank in (first, second)]
    assert [rank["local_rank"] for rank in (first, second)] == [0, 1]
    assert {rank["host"] for rank in (first, second)} == {socket.gethostname()}
    assert {rank.get("machine") for rank in (first, second)} == {binding.boot_id()}
    assert first["host_cores"] == os.cpu_count() and first["pid"] != second["pid"]
    if Path("/sys/devices/system/node/node0").exists():
        assert all(len(rank["numa"]) == 1 for rank in (first, second)), "one core belongs to one node"


def test_unbound_ranks_are_reported(mpi_run):
    (warning,) = on_ranks(mpi_run, "none", CPU)["outcome"]
    assert warning.startswith(f"{socket.gethostname()}: ranks are not bound to separate cores")


def test_ranks_that_share_one_core_have_too_few(mpi_run):
    core = min(os.sched_getaffinity(0))
    outcome = on_ranks(mpi_run, "none", CPU, cores=[[core], [core]])["outcome"]
    assert f"2 ranks x 1 cores were requested, but the ranks are bound to only 1 core in total ({core} ...)" in outcome


def test_a_rank_with_fewer_cores_than_asked_is_refused(mpi_run):
    outcome = on_ranks(mpi_run, "core:1", {**CPU, "cores_per_rank": 2})["outcome"]
    assert "rank 0 is bound to 1 core (" in outcome and "2 were requested" in outcome


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": 2}, r"the ranks run on 1 node \(.*\) instead of the requested 2"),
        ({"ranks_per_node": 4}, "runs 2 ranks instead of the requested 4 per node"),
    ],
)
def test_another_world_than_requested_is_refused(mpi_run, change, message):
    assert re.search(message, on_ranks(mpi_run, "none", {**CPU, **change})["outcome"])


# ---------------------------------------------------------------- planted worlds


def rank(number, cores, *, host="n1", gpu=None, visible=1, uuid=None, environment=None):
    fields = {
        "rank": number,
        "host": host,
        "cores": cores,
        "core_ranges": binding.ranges(cores),
        "host_cores": 64,
        "device": "cpu" if gpu is None else f"cuda:{gpu} V100",
        "visible": environment or {},
    }
    if gpu is not None:
        fields["gpu"] = {"number": gpu, "uuid": uuid, "pci": None, "visible": visible, "peers": []}
    return fields


def check(world, *, oversubscribe=False, **shape):
    asked = RankShape(**{**CPU, "ranks_per_node": len(world), **shape}) if shape else None
    return binding.check(world, SimpleNamespace(shape=asked, oversubscribe=oversubscribe))


def test_cores_shared_by_two_bound_ranks_are_refused_with_both_named():
    world = [rank(0, [0, 1, 2, 3]), rank(1, [4, 5, 6, 7]), rank(2, [6, 7, 8, 9])]
    with pytest.raises(UserError, match=r"n1: ranks 1 and 2 are both bound to core 6 \(cores 4-7 and 6-9\)"):
        check(world)
    assert check(world, oversubscribe=True) == []
    assert check([*world[:2], rank(2, [6, 7, 8, 9], host="n2")]) == [], "cores of other hosts are other cores"


def test_an_unbound_rank_among_bound_ones_does_not_overlap():
    assert check([rank(0, [0, 1]), rank(1, list(range(64)))]) == []


def test_ranks_that_may_use_the_whole_allocation_are_unbound():
    """If a scheduler gives a job 8 of 64 cores, each rank sees these 8."""
    given = list(range(8, 16))
    assert "n1: ranks are not bound" in check([rank(0, given), rank(1, given)], cores_per_rank=4)[0]
    with pytest.raises(
        UserError, match=r"2 ranks x 5 cores were requested, but the ranks are bound to only 8 cores in total"
    ):
        check([rank(0, given), rank(1, given)], cores_per_rank=5)


def test_many_unbound_hosts_are_reported_in_one_line():
    world = [rank(i, list(range(64)), host=f"n{i // 2}") for i in range(8)]
    assert check(world)[0].startswith("n0 and 3 more: ranks are not bound")
    assert len(check(world)) == 1


@pytest.mark.parametrize(
    ("world", "asked", "refused"),
    [
        # without launcher options, all ranks use GPU 0 of 4
        ([(0, 4, None), (0, 4, None)], {}, True),
        ([(0, 4, "GPU-a"), (0, 4, "GPU-a")], {"gpus_per_rank": "1"}, True),
        # the launcher exposes a single GPU, the same for all ranks
        ([(0, 1, "GPU-a"), (0, 1, "GPU-a")], {"gpus_per_rank": "1"}, True),
        ([(0, 1, "GPU-a"), (0, 1, "GPU-b")], {"gpus_per_rank": "1"}, False),
        ([(0, 1, None), (0, 1, None)], {}, False),  # a single GPU
        ([(0, 2, None), (1, 2, None)], {"visibility": "all"}, False),
        # two ranks per GPU were requested, but there are four
        ([(0, 1, "GPU-a")] * 2 + [(0, 1, "GPU-b")] * 2, {"gpus_per_rank": "1/2"}, False),
        ([(0, 1, "GPU-a")] * 4, {"gpus_per_rank": "1/2"}, True),
    ],
)
def test_ranks_that_share_one_gpu_are_refused(world, asked, refused):
    ranks = [rank(i, [i], gpu=gpu, visible=n, uuid=uuid) for i, (gpu, n, uuid) in enumerate(world)]
    if refused:
        with pytest.raises(UserError, match=r"n1: ranks 0, 1.* compute on the same GPU \(cuda:0 V100\)"):
            check(ranks, **asked)
    else:
        assert check(ranks, **asked) == []


def test_gpus_without_a_name_are_identified_by_the_visible_devices_of_each_rank():
    shown = [{"CUDA_VISIBLE_DEVICES": str(i)} for i in range(2)]
    assert check([rank(i, [i], gpu=0, environment=shown[i]) for i in range(2)], gpus_per_rank="1") == []
    with pytest.raises(UserError, match="same GPU"):
        check([rank(i, [i], gpu=0, environment=shown[0]) for i in range(2)], gpus_per_rank="1")


def test_a_rank_that_sees_more_than_its_own_gpus_is_reported():
    world = [rank(i, [i], gpu=i, visible=4, uuid=f"GPU-{i}") for i in range(2)]
    assert check(world, gpus_per_rank="1") == ["n1: rank 0 sees 4 GPUs, but should see only 1"]
    assert check(world, gpus_per_rank="1", visibility="all") == []


def test_ranges_are_compact_and_reversible():
    assert binding.ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert binding.ranges([]) == ""
    for numbers in ({0}, {3, 4, 9}, set(range(0, 64, 2)), set()):
        assert binding.numbers(binding.ranges(sorted(numbers)) + "\n") == numbers


def test_a_machine_is_identified_by_its_running_kernel(tmp_path):
    """Virtual hosts and containers have separate names, but share a kernel."""
    (tmp_path / "boot_id").write_text("5f0c6a2e-8d3b-4c55-9a51-0e1d2f3a4b5c\n")
    assert binding.boot_id(tmp_path / "boot_id") == "5f0c6a2e-8d3b-4c55-9a51-0e1d2f3a4b5c"
    assert binding.boot_id(tmp_path / "none") is None


def test_numa_nodes_are_those_of_the_cores(tmp_path):
    for node, cores in enumerate(("0-3,8-11", "4-7,12-15")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cores + "\n")
    assert binding.numa_nodes({0, 9}, tmp_path) == [0]
    assert binding.numa_nodes({3, 4}, tmp_path) == [0, 1]
    assert binding.numa_nodes({3}, tmp_path / "none") is None


def test_a_gpu_is_recorded_with_pytorchs_answers(monkeypatch):
    """The test fakes what PyTorch reports: the number, names and peers of GPUs, and missing values."""
    properties = SimpleNamespace(name="V100", uuid="a-b", pci_domain_id=4, pci_bus_id=0xC1, pci_device_id=0)
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: properties)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda gpu, other: (gpu, other) != (1, 3))
    expected = {"number": 1, "uuid": "a-b", "pci": "0004:c1:00", "visible": 4, "peers": [0, 2]}
    assert binding._gpu(5, 5) == {"device": "cuda:1 V100", "gpu": expected}
    assert chosen == [1]
    properties = SimpleNamespace(name="old")
    assert binding._gpu(0, 0)["gpu"]["uuid"] is binding._gpu(0, 0)["gpu"]["pci"] is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"rank 5 on .* the run needs a GPU, but PyTorch detects none"):
        binding._gpu(5, 1)
