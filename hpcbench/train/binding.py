"""Actual placement of ranks. Each rank records its placement, which is compared with the requested placement.

With wrong options, a launcher may still start the ranks, but only on half of the nodes, several on the same cores, or
all on the first GPU. A wrong placement is rejected. A placement that may slow down the run is reported.
"""

import os
import socket
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from mpi4py import MPI

from hpcbench.contract.run import RankShape, Run
from hpcbench.errors import UserError

Rank = dict[str, Any]
"""Placement record of one rank."""

_NODES = Path("/sys/devices/system/node")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_NICS = (
    "UCX_NET_DEVICES",
    "UCX_TLS",
    "MPICH_OFI_NIC_POLICY",
    "MPICH_OFI_NIC_MAPPING",
    "FI_PROVIDER",
    "MV2_IBA_HCA",
    "OMPI_MCA_btl_openib_if_include",
    "OMPI_MCA_btl_tcp_if_include",
)


def describe(comm: MPI.Comm, device: str) -> Rank:
    """Return the host, cores and GPU of this rank, and select this GPU (a collective call).

    Raises
    ------
    UserError
        The run needs a GPU, but PyTorch does not detect a GPU.
    """
    shared = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    local_rank = int(shared.rank)
    shared.Free()
    cores = sorted(os.sched_getaffinity(0))
    return {
        "rank": comm.rank,
        "local_rank": local_rank,
        "host": socket.gethostname(),
        **({"machine": machine} if (machine := boot_id()) else {}),
        "pid": os.getpid(),
        "cores": cores,
        "core_ranges": ranges(cores),
        "host_cores": os.cpu_count(),
        "numa": numa_nodes(set(cores)),
        **({"device": "cpu"} if device == "cpu" else _gpu(comm.rank, local_rank)),
        "visible": _set(_VISIBLE),
        "nics": _set(_NICS),
    }


def boot_id(file: Path = _BOOT_ID) -> str | None:
    """Return the boot ID of the kernel, or None if the kernel does not report it."""
    try:
        return file.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers as ascending ranges, such as ``0-6,28-34``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def numbers(text: str) -> set[int]:
    """Parse ranges in the format of `ranges` and of the kernel."""
    pairs = (part.partition("-") for part in text.strip().split(",") if part)
    return {number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)}


def numa_nodes(cores: set[int], nodes: Path = _NODES) -> list[int] | None:
    """Return the NUMA nodes that the cores belong to, or None if the kernel does not report them."""
    nodes_of_cores = [
        int(path.parent.name.removeprefix("node"))
        for path in nodes.glob("node[0-9]*/cpulist")
        if cores & numbers(path.read_text())
    ]
    return sorted(nodes_of_cores) or None


def _set(names: Iterable[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _gpu(rank: int, local_rank: int) -> Rank:
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            f"rank {rank} on {socket.gethostname()}: the run needs a GPU, but PyTorch detects none: check the "
            "site's node.gpus, its modules, and that PyTorch was built for CUDA"
        )
    count = torch.cuda.device_count()
    device = local_rank % count  # a launcher may expose only one GPU per rank
    torch.cuda.set_device(device)
    about = torch.cuda.get_device_properties(device)
    return {
        "device": f"cuda:{device} {about.name}",
        "gpu": {
            "number": device,
            "uuid": _word(about, "{0.uuid}"),
            "pci": _word(about, "{0.pci_domain_id:04x}:{0.pci_bus_id:02x}:{0.pci_device_id:02x}"),
            "visible": count,
            "peers": [i for i in range(count) if i != device and torch.cuda.can_device_access_peer(device, i)],
        },
    }


def _word(about: Any, form: str) -> str | None:
    """Return a value as text, or None if this version of PyTorch does not provide the value."""
    try:
        return form.format(about)
    except AttributeError:
        return None


def check(world: list[Rank], run: Run) -> list[str]:
    """Compare the placement of the ranks with the requested placement.

    Returns
    -------
    list[str]
        A line for each fault that may slow down the run.

    Raises
    ------
    UserError
        The run would measure a different configuration: wrong nodes, shared cores, or one GPU for all ranks of a host.
    """
    hosts: dict[str, list[Rank]] = defaultdict(list)
    for rank in world:
        hosts[rank["host"]].append(rank)
    if run.shape:
        _check_places(hosts, run.shape)
    loose, sights = [], []
    for host, ranks in hosts.items():
        if not run.oversubscribe and _check_cores(host, ranks, run.shape):
            loose.append(host)
        _check_gpus(host, ranks, run.shape)
        if run.shape and (sight := _sight(ranks, run.shape)):
            sights.append((host, sight))
    warnings = []
    if loose:
        warnings.append(f"{_some(loose)}: ranks are not bound to separate cores, so ranks may migrate and share cores")
    if sights:
        warnings.append(f"{_some([host for host, _ in sights])}: {sights[0][1]}")
    return warnings


def _check_places(hosts: dict[str, list[Rank]], shape: RankShape) -> None:
    if len(hosts) != shape.nodes:
        raise UserError(
            f"the ranks run on {_count(len(hosts), 'node')} ({_some(list(hosts))}) instead of the requested "
            f"{shape.nodes}: check the launcher's options in the site file"
        )
    for host, ranks in hosts.items():
        if len(ranks) != shape.ranks_per_node:
            raise UserError(
                f"{host} runs {_count(len(ranks), 'rank')} instead of the requested {shape.ranks_per_node} per "
                "node: check the launcher's options in the site file"
            )


def _check_cores(host: str, ranks: list[Rank], shape: RankShape | None) -> bool:
    """Reject ranks that share bound cores. Return whether several ranks are not bound at all.

    Ranks with the same set of cores are considered unbound. The set may contain all cores of the host or of the job.
    """
    sets = [set(rank["cores"]) for rank in ranks]
    loose = len(ranks) > 1 and all(cores == sets[0] for cores in sets)
    if shape:
        _check_enough(host, ranks, len(set.union(*sets)), shape)
    if loose:
        return True
    taken: dict[int, Rank] = {}
    for rank in ranks:
        if len(rank["cores"]) >= (rank["host_cores"] or 0):
            continue
        for core in rank["cores"]:
            other = taken.setdefault(core, rank)
            if other is not rank:
                raise UserError(
                    f"{host}: ranks {other['rank']} and {rank['rank']} are both bound to core {core} (cores "
                    f"{ranges(other['cores'])} and {ranges(rank['cores'])}): check the launcher's binding options in "
                    "the site file"
                )
    return False


def _check_enough(host: str, ranks: list[Rank], together: int, shape: RankShape) -> None:
    for rank in ranks:
        if len(rank["cores"]) < shape.cores_per_rank:
            raise UserError(
                f"{host}: rank {rank['rank']} is bound to {_count(len(rank['cores']), 'core')} "
                f"({ranges(rank['cores'])}), but {shape.cores_per_rank} were requested: check the launcher's "
                "binding options in the site file"
            )
    if together < len(ranks) * shape.cores_per_rank:
        raise UserError(
            f"{host}: {len(ranks)} ranks x {shape.cores_per_rank} cores were requested, but the ranks are bound "
            f"to only {_count(together, 'core')} in total ({ranks[0]['core_ranges']} ...): check the launcher's "
            "binding options in the site file"
        )


def _check_gpus(host: str, ranks: list[Rank], shape: RankShape | None) -> None:
    """Reject ranks that share fewer GPUs than requested."""
    by_gpu: dict[object, list[Rank]] = defaultdict(list)
    for rank in ranks:
        if rank.get("gpu"):
            by_gpu[_identity(rank)].append(rank)
    for crowd in by_gpu.values():
        if len(crowd) <= _sharers(shape, crowd):
            continue
        who = ", ".join(str(rank["rank"]) for rank in crowd)
        asked = f"{shape.gpus_per_rank} GPUs per rank were requested" if shape else "the host has more GPUs"
        raise UserError(
            f"{host}: ranks {who} compute on the same GPU ({crowd[0]['device']}), but {asked}: check the "
            "launcher's GPU options in the site file"
        )


def _identity(rank: Rank) -> object:
    """Return a key that identifies a GPU of a host, independent of the device index on each rank."""
    gpu = rank["gpu"]
    return gpu["uuid"] or gpu["pci"] or (gpu["number"], tuple(rank["visible"].values()))


def _sharers(shape: RankShape | None, crowd: list[Rank]) -> int:
    """Return the number of ranks that may share one GPU.

    If the number was not set and the host has only one GPU, all ranks may share this GPU.
    """
    gpus = Fraction(shape.gpus_per_rank) if shape else Fraction(0)
    if gpus:
        return max(1, int(1 / gpus))
    return 1 if any(rank["gpu"]["visible"] > 1 for rank in crowd) else len(crowd)


def _sight(ranks: list[Rank], shape: RankShape) -> str | None:
    """Return a message if ranks see more GPUs than requested, because libraries may then behave differently."""
    if shape.visibility != "one":
        return None
    wanted = max(1, int(Fraction(shape.gpus_per_rank)))
    crowd = [rank for rank in ranks if rank.get("gpu") and rank["gpu"]["visible"] > wanted]
    if not crowd:
        return None
    seen = crowd[0]["gpu"]["visible"]
    return f"rank {crowd[0]['rank']} sees {_count(seen, 'GPU')}, but should see only {wanted}"


def _some(hosts: list[str]) -> str:
    return hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")
