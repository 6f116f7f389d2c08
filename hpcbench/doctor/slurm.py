"""Survey of a Slurm cluster from a login node."""

import re

from hpcbench.batch.schedulers.accounts import Association, make_association_query, read_associations
from hpcbench.doctor.ask import ask
from hpcbench.doctor.cluster import Cluster, Nodes, Said
from hpcbench.doctor.gres import Gpus, read_gres
from hpcbench.doctor.partition import read_partition
from hpcbench.doctor.scheduler import Sighting

_SHAPES = "%P|%D|%c|%X|%Y|%Z|%m|%G"


def survey(seen: Sighting) -> Cluster:
    """Survey partitions, nodes, limits and accounts."""
    cluster = Cluster("slurm", seen.fact, seen.name)
    config = _fields(ask(["scontrol", "show", "config"]).out)
    qos = _qos()
    shapes = _shapes(cluster)
    associations = _associations(cluster)
    answer = ask(["scontrol", "--oneliner", "show", "partition"])
    if answer.problem:
        cluster.notes.append(f"partitions are unknown: {answer.problem}")
    partitions = [_split_fields(line) for line in answer.out.splitlines() if line.startswith("PartitionName=")]
    cluster.queues = [read_partition(fields, shapes, qos, associations) for fields in partitions]
    array = config.get("MaxArraySize", "")
    if array.isdigit() and int(array) > 1:
        cluster.scheduler["max_array"] = Said(
            int(array) - 1, f"scontrol show config: MaxArraySize = {array}, which is one above"
        )
    chosen = cluster.chosen()
    kind = chosen.kind() if chosen else None
    if chosen and kind:
        fields = next(fields for fields in partitions if fields["PartitionName"] == chosen.name)
        _request(cluster, fields, kind, config)
        _reserved(cluster, chosen.name)
    for name, limits in qos.items():
        if limits:
            cluster.notes.append(
                f"quality of service {name}: {', '.join(f'{key} {value}' for key, value in limits.items())} "
                "(sacctmgr show qos)"
            )
    if qos:
        cluster.notes.append(
            "where a quality of service takes the place of a partition, write queue_option: --qos and list those"
        )
    return cluster


def mpi_plugins() -> tuple[list[str], str | None]:
    """Return the kinds of MPI that srun can start, and its default kind."""
    answer = ask(["srun", "--mpi=list"])
    text = answer.out + answer.err  # older ones list them on standard error, behind their name
    names = [
        name
        for name in re.findall(r"[a-z0-9_]+", text)
        if re.fullmatch(r"pmi2|pmix(_v\d+)?|cray_shasta|openmpi|none", name)
    ]
    default = re.search(r"^MpiDefault\s*=\s*(\S+)", ask(["scontrol", "show", "config"]).out, re.MULTILINE)
    return list(dict.fromkeys(names)), default[1] if default else None


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _split_fields(line: str) -> dict[str, str]:
    return {key: value for key, is_, value in (word.partition("=") for word in line.split()) if is_}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and int(text) > 0 else None


def _shapes(cluster: Cluster) -> dict[str, list[Nodes]]:
    answer = ask(["sinfo", "--noheader", "--exact", f"--format={_SHAPES}"])
    if answer.problem:
        cluster.notes.append(f"nodes are unknown: {answer.problem}")
    shapes: dict[str, list[Nodes]] = {}
    for line in answer.out.splitlines():
        parts = line.strip().split("|")
        if len(parts) == _SHAPES.count("|") + 1:
            shapes.setdefault(parts[0].rstrip("*"), []).append(_nodes(*parts[1:]))
    return shapes


def _nodes(count: str, cpus: str, sockets: str, cores: str, threads: str, memory: str, gres: str) -> Nodes:
    """Build nodes. Slurm's CPUs are cores or hardware threads, as the administrator chose."""
    per_node = (_number(sockets) or 1) * (_number(cores) or 1)
    all_cpus = _number(cpus.rstrip("+"))
    gpus = read_gres(gres)
    megabytes = _number(memory.rstrip("+"))
    return Nodes(
        count=int(count) if count.isdigit() else 0,
        cores=min(per_node, all_cpus) if all_cpus else per_node,
        sockets=_number(sockets),
        threads=max(1, all_cpus // per_node) if all_cpus else _number(threads),
        memory_gb=megabytes // 1024 or None if megabytes else None,
        gpus=gpus.number,
        gpu=" and ".join(gpus.models) or None,
        socket_gpus=_by_socket(gpus, _number(sockets) or 1),
        doubt=gpus.doubt,
        gres=gpus.request,
    )


def _by_socket(gpus: Gpus, sockets: int) -> tuple[int, ...] | None:
    """Return the number of GPUs per socket; None unless each entry names one socket."""
    if not gpus.entries or not all(e.sockets.isdigit() and int(e.sockets) < sockets for e in gpus.entries):
        return None
    return tuple(sum(e.number for e in gpus.entries if int(e.sockets) == socket) for socket in range(sockets))


def _qos() -> dict[str, dict[str, str]]:
    """Return the qualities of service and their limits; empty without accounting."""
    keys = ("MaxWall", "MaxSubmitPU", "MaxJobsPU", "MaxTRES", "MaxTRESPU")
    answer = ask(["sacctmgr", "--noheader", "--parsable2", "show", "qos", f"format=Name,{','.join(keys)}"])
    rows = [line.split("|") for line in answer.out.splitlines()] if answer.ok else []
    return {
        name: {key: value for key, value in zip(keys, values, strict=True) if value}
        for name, *values in rows
        if len(values) == len(keys)
    }


def _associations(cluster: Cluster) -> list[Association]:
    fields = ("Account", "Partition", "QOS", "MaxSubmit")
    answer = ask(make_association_query(fields))
    associations = read_associations(answer.out, fields) if answer.ok else []
    accounts = list(dict.fromkeys(association.account for association in associations))
    source = f"sacctmgr show assoc: yours are {', '.join(accounts)}; a study names one in `account`"
    cluster.scheduler["account_option"] = (
        Said("--account", source)
        if accounts
        else Said(
            "--account",
            f"Slurm's own; your accounts are unknown: {answer.problem or 'sacctmgr names none'}",
            sure=False,
        )
    )
    limits = [number for association in associations if (number := _number(association.max_submit))]
    if limits:
        cluster.scheduler["max_submitted"] = Said(min(limits), "sacctmgr show assoc: MaxSubmit of your association")
    return associations


def _request(cluster: Cluster, fields: dict[str, str], kind: Nodes, config: dict[str, str]) -> None:
    """Set the directives for GPUs and for exclusive nodes: other jobs on a node would disturb the measurement."""
    directives: dict[str, str | int | None] = {}
    sources = []
    if kind.gpus and kind.gres:
        cluster.scheduler["gpu_request"] = Said(
            "none", f"scheduler.directives ask for {kind.gres}: a request without a model may give slices", sure=False
        )
        directives["--gres"] = kind.gres
        sources.append("sinfo: MIG slices")
    elif kind.gpus:
        cluster.scheduler["gpu_request"] = Said(
            "gres",
            "sinfo shows GPUs as gres; TACC and others want none, some gpus-per-node: see the site's pages",
            sure=False,
        )
    if fields.get("OverSubscribe") != "EXCLUSIVE":
        directives["--exclusive"] = None
        sources.append(f"OverSubscribe={fields.get('OverSubscribe', '?')}: nodes may be shared")
    if "MEMORY" in config.get("SelectTypeParameters", "").upper():
        directives["--mem"] = 0
        sources.append(f"{config['SelectTypeParameters']}: memory is dealt out, 0 is all of it")
    if directives:
        cluster.scheduler["directives"] = Said(directives, "; ".join(sources), sure=False)


def _reserved(cluster: Cluster, partition: str) -> None:
    """Note the cores that the system reserves: a job that asks for them never starts."""
    names = ask(["sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N"]).out.split()
    if not names:
        return
    fields = _split_fields(ask(["scontrol", "--oneliner", "show", "node", names[0]]).out.replace("\n", " "))
    cores = _number(fields.get("CoreSpecCount"))
    if cores:
        cluster.notes.append(
            f"CoreSpecCount={cores} (scontrol show node {names[0]}): subtract them from node.cores: they are reserved"
        )
