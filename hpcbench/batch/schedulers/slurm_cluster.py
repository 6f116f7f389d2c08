"""Slurm cluster queries: controller, settings, partitions, nodes, and limits."""

import re
import shutil
from collections.abc import Mapping, Sequence

from hpcbench.batch.schedulers.accounts import Association
from hpcbench.batch.schedulers.attempt import ask_scheduler
from hpcbench.batch.schedulers.cluster import Nodes, QueueFacts, Sighting, report_failure
from hpcbench.batch.schedulers.slurm_gres import Gpus, read_gres
from hpcbench.batch.schedulers.slurm_partition import parse_number, read_partition

_SHAPES = "%P|%D|%c|%X|%Y|%Z|%m|%G"


def find_slurm() -> Sighting:
    """Query controller availability, Slurm version, and cluster name."""
    ping = ask_scheduler(["scontrol", "ping"])
    up = re.search(r"Slurmctld\(.*\) at (\S+) is UP", ping.out)
    if not up:
        return report_failure("slurm", "srun", ping, "no controller is up")
    printed = ask_scheduler(["sinfo", "--version"])
    version = printed.out.split()[-1] if printed.ok and printed.out.split() else None
    fact = f"Slurm {version or 'of unknown version'}: its controller on {up[1]} answers"
    return Sighting("slurm", True, fact, shutil.which("srun"), read_config().get("ClusterName") or None, version)


def read_config() -> dict[str, str]:
    """Return Slurm settings, keyed by name. The result is empty if the controller does not respond."""
    pairs = (
        line.partition("=") for line in ask_scheduler(["scontrol", "show", "config"]).out.splitlines() if "=" in line
    )
    return {key.strip(): value.strip() for key, _, value in pairs}


def list_mpi_plugins() -> list[str]:
    """Return the MPI types supported by srun."""
    answer = ask_scheduler(["srun", "--mpi=list"])
    text = answer.out + answer.err  # old versions list the types on stderr
    names = re.findall(r"[a-z0-9_]+", text)
    return list(
        dict.fromkeys(name for name in names if re.fullmatch(r"pmi2|pmix(_v\d+)?|cray_shasta|openmpi|none", name))
    )


def list_partitions(
    nodes: Mapping[str, Sequence[Nodes]], qos: Mapping[str, Mapping[str, str]], associations: Sequence[Association]
) -> tuple[list[QueueFacts], str]:
    """Return the partitions, as parsed by `read_partition`, and an error message if the call failed."""
    answer = ask_scheduler(["scontrol", "--oneliner", "show", "partition"])
    partitions = [_split_fields(line) for line in answer.out.splitlines() if line.startswith("PartitionName=")]
    return [read_partition(fields, nodes, qos, associations) for fields in partitions], answer.problem


def list_nodes() -> tuple[dict[str, list[Nodes]], str]:
    """Return the nodes keyed by partition, and an error message if the call failed."""
    answer = ask_scheduler(["sinfo", "--noheader", "--exact", f"--format={_SHAPES}"])
    shapes: dict[str, list[Nodes]] = {}
    for line in answer.out.splitlines():
        parts = line.strip().split("|")
        if len(parts) == _SHAPES.count("|") + 1:
            shapes.setdefault(parts[0].rstrip("*"), []).append(_nodes(*parts[1:]))
    return shapes, answer.problem


def list_qos() -> dict[str, dict[str, str]]:
    """Return the limits of each quality of service, keyed by name.

    The result is empty if Slurm accounting is not available.
    """
    keys = ("MaxWall", "MaxSubmitPU", "MaxJobsPU", "MaxTRES", "MaxTRESPU")
    answer = ask_scheduler(["sacctmgr", "--noheader", "--parsable2", "show", "qos", f"format=Name,{','.join(keys)}"])
    rows = [line.split("|") for line in answer.out.splitlines()] if answer.ok else []
    return {
        name: {key: value for key, value in zip(keys, values, strict=True) if value}
        for name, *values in rows
        if len(values) == len(keys)
    }


def count_reserved_cores(partition: str) -> tuple[str, int] | None:
    """Return the name of a node on which cores are reserved for the system, and the number of these cores.

    Return None if there is no such node.
    """
    names = ask_scheduler(["sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N"]).out.split()
    if not names:
        return None
    fields = _split_fields(ask_scheduler(["scontrol", "--oneliner", "show", "node", names[0]]).out.replace("\n", " "))
    cores = parse_number(fields.get("CoreSpecCount"))
    return (names[0], cores) if cores else None


def _split_fields(line: str) -> dict[str, str]:
    return {key: value for key, is_, value in (word.partition("=") for word in line.split()) if is_}


def _nodes(count: str, cpus: str, sockets: str, cores: str, threads: str, memory: str, gres: str) -> Nodes:
    """Build nodes. Slurm's CPUs are cores or hardware threads, depending on the configuration."""
    per_node = (parse_number(sockets) or 1) * (parse_number(cores) or 1)
    all_cpus = parse_number(cpus.rstrip("+"))
    gpus = read_gres(gres)
    megabytes = parse_number(memory.rstrip("+"))
    return Nodes(
        count=int(count) if count.isdigit() else 0,
        cores=min(per_node, all_cpus) if all_cpus else per_node,
        sockets=parse_number(sockets),
        threads=max(1, all_cpus // per_node) if all_cpus else parse_number(threads),
        memory_gb=megabytes // 1024 or None if megabytes else None,
        gpus=gpus.number,
        gpu=" and ".join(gpus.models) or None,
        socket_gpus=_by_socket(gpus, parse_number(sockets) or 1),
        doubt=gpus.doubt,
        gres=gpus.request,
    )


def _by_socket(gpus: Gpus, sockets: int) -> tuple[int, ...] | None:
    """Return the number of GPUs on each socket, or None if any entry does not name exactly one socket."""
    if not gpus.entries or not all(e.sockets.isdigit() and int(e.sockets) < sockets for e in gpus.entries):
        return None
    return tuple(sum(e.number for e in gpus.entries if int(e.sockets) == socket) for socket in range(sockets))
