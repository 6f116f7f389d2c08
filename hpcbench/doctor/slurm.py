"""What a login node can see of a Slurm cluster."""

import getpass
import re
from collections.abc import Iterator

from hpcbench.batch.scripts.duration import Duration
from hpcbench.doctor.ask import ask
from hpcbench.doctor.cluster import Cluster, Line, Nodes, Said
from hpcbench.doctor.scheduler import Sighting

_SHAPES = "%P|%D|%c|%X|%Y|%Z|%m|%G"
_GPU = re.compile(r"gpu(?::([^:,()|]+))?:(\d+)(?:\(S:([\d,-]+)\))?")


def survey(seen: Sighting) -> Cluster:
    """Partitions, nodes, limits and accounts."""
    cluster = Cluster("slurm", seen.fact, seen.name)
    config = _fields(ask(["scontrol", "show", "config"]).out)
    qos = dict(_qos())
    shapes = _shapes(cluster)
    said = ask(["scontrol", "--oneliner", "show", "partition"])
    if said.problem:
        cluster.notes.append(f"partitions are unknown: {said.problem}")
    partitions = [_words(line) for line in said.out.splitlines() if line.startswith("PartitionName=")]
    cluster.queues = [_line(words, shapes, qos) for words in partitions]
    array = config.get("MaxArraySize", "")
    if array.isdigit() and int(array) > 1:
        cluster.scheduler["max_array"] = Said(
            int(array) - 1, f"scontrol show config: MaxArraySize = {array}, which is one above"
        )
    _accounts(cluster)
    chosen = cluster.chosen()
    kind = chosen.kind() if chosen else None
    if chosen and kind:
        words = next(words for words in partitions if words["PartitionName"] == chosen.name)
        _request(cluster, words, kind, config)
        _reserved(cluster, chosen.name)
    for name, limits in qos.items():
        if limits:
            cluster.notes.append(f"quality of service {name}: {', '.join(limits.values())} (sacctmgr show qos)")
    if qos:
        cluster.notes.append(
            "where a quality of service takes the place of a partition, write queue_option: --qos and list those"
        )
    return cluster


def mpi_plugins() -> tuple[list[str], str | None]:
    """The kinds of MPI that srun can start, and the one that it takes unless told otherwise."""
    said = ask(["srun", "--mpi=list"])
    text = said.out + said.err  # older ones list them on standard error, behind their name
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


def _words(line: str) -> dict[str, str]:
    return {key: value for key, is_, value in (word.partition("=") for word in line.split()) if is_}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and int(text) > 0 else None


def _shapes(cluster: Cluster) -> dict[str, list[Nodes]]:
    said = ask(["sinfo", "--noheader", "--exact", f"--format={_SHAPES}"])
    if said.problem:
        cluster.notes.append(f"nodes are unknown: {said.problem}")
    found: dict[str, list[Nodes]] = {}
    for line in said.out.splitlines():
        parts = line.strip().split("|")
        if len(parts) == _SHAPES.count("|") + 1:
            found.setdefault(parts[0].rstrip("*"), []).append(_nodes(*parts[1:]))
    return found


def _nodes(count: str, cpus: str, sockets: str, cores: str, threads: str, memory: str, gres: str) -> Nodes:
    """Slurm's CPUs are cores or hardware threads, as the administrator chose."""
    per_node = (_number(sockets) or 1) * (_number(cores) or 1)
    said = _number(cpus.rstrip("+"))
    gpus = [(kind, int(number), where) for kind, number, where in _GPU.findall(gres)]
    total = sum(number for _, number, _ in gpus)
    megabytes = _number(memory.rstrip("+"))
    return Nodes(
        count=int(count) if count.isdigit() else 0,
        cores=min(per_node, said) if said else per_node,
        sockets=_number(sockets),
        threads=max(1, said // per_node) if said else _number(threads),
        memory_gb=megabytes // 1024 or None if megabytes else None,
        gpus=total,
        gpu=" and ".join(dict.fromkeys(kind for kind, _, _ in gpus if kind)) or None,
        socket_gpus=_by_socket(gpus, _number(sockets) or 1),
    )


def _by_socket(gpus: list[tuple[str, int, str]], sockets: int) -> tuple[int, ...] | None:
    """GPUs of each socket, where each entry belongs to one."""
    if not gpus or not all(where.isdigit() and int(where) < sockets for _, _, where in gpus):
        return None
    return tuple(sum(number for _, number, where in gpus if int(where) == socket) for socket in range(sockets))


def _line(words: dict[str, str], shapes: dict[str, list[Nodes]], qos: dict[str, dict[str, str]]) -> Line:
    name = words["PartitionName"]
    limits = qos.get(words.get("QoS", ""), {})
    notes = [
        f"{key}={words[key]}" for key in ("AllowAccounts", "AllowGroups", "AllowQos") if words.get(key, "ALL") != "ALL"
    ]
    notes += [f"QoS={words['QoS']}: {', '.join(limits.values())}"] if limits else []
    try:
        longest = Duration.of_slurm(words.get("MaxTime", "infinite"))
    except ValueError as error:
        longest = None
        notes.append(str(error))
    return Line(
        name,
        f"scontrol show partition {name}",
        shapes.get(name, ()),
        default=words.get("Default") == "YES",
        open=words.get("State", "UP") == "UP",
        min_nodes=number if (number := _number(words.get("MinNodes"))) and number > 1 else None,
        max_nodes=_number(words.get("MaxNodes")) or _number(words.get("TotalNodes")),  # more would wait for ever
        max_walltime=str(longest) if longest else None,
        max_submitted=_number(limits.get("MaxSubmitPU", "").rpartition(" ")[2]),
        notes=notes,
    )


def _qos() -> Iterator[tuple[str, dict[str, str]]]:
    """Qualities of service and their limits in words; none where there is no accounting."""
    keys = ("MaxWall", "MaxSubmitPU", "MaxJobsPU", "MaxTRES", "MaxTRESPU")
    said = ask(["sacctmgr", "--noheader", "--parsable2", "show", "qos", f"format=Name,{','.join(keys)}"])
    for line in said.out.splitlines() if said.ok else ():
        name, *values = line.split("|")
        if len(values) == len(keys):
            yield name, {key: f"{key} {value}" for key, value in zip(keys, values, strict=True) if value}


def _accounts(cluster: Cluster) -> None:
    user = getpass.getuser()
    format_ = "format=Account,Partition,QOS,MaxSubmit"
    said = ask(["sacctmgr", "--noheader", "--parsable2", "show", "assoc", "where", f"user={user}", format_])
    rows = [row for line in said.out.splitlines() if len(row := line.split("|")) == 4] if said.ok else []
    accounts = list(dict.fromkeys(row[0] for row in rows if row[0]))
    source = f"sacctmgr show assoc: yours are {', '.join(accounts)}; a study names one in `account`"
    cluster.scheduler["account_option"] = (
        Said("--account", source)
        if accounts
        else Said(
            "--account", f"Slurm's own; your accounts are unknown: {said.problem or 'sacctmgr names none'}", sure=False
        )
    )
    limits = [number for row in rows if (number := _number(row[3]))]
    if limits:
        cluster.scheduler["max_submitted"] = Said(min(limits), "sacctmgr show assoc: MaxSubmit of your association")


def _request(cluster: Cluster, words: dict[str, str], kind: Nodes, config: dict[str, str]) -> None:
    """How the head of a script asks for GPUs, and for nodes of its own: a neighbour would disturb what is measured."""
    if kind.gpus:
        cluster.scheduler["gpu_request"] = Said(
            "gres",
            "sinfo shows GPUs as gres; TACC and others want none, some gpus-per-node: see the site's pages",
            sure=False,
        )
    directives: dict[str, str | int | None] = {}
    sources = []
    if words.get("OverSubscribe") != "EXCLUSIVE":
        directives["--exclusive"] = None
        sources.append(f"OverSubscribe={words.get('OverSubscribe', '?')}: nodes may be shared")
    if "MEMORY" in config.get("SelectTypeParameters", "").upper():
        directives["--mem"] = 0
        sources.append(f"{config['SelectTypeParameters']}: memory is dealt out, 0 is all of it")
    if directives:
        cluster.scheduler["directives"] = Said(directives, "; ".join(sources), sure=False)


def _reserved(cluster: Cluster, partition: str) -> None:
    """Cores that the system keeps for itself: a job that asks for them never starts."""
    names = ask(["sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N"]).out.split()
    if not names:
        return
    words = _words(ask(["scontrol", "--oneliner", "show", "node", names[0]]).out.replace("\n", " "))
    kept = _number(words.get("CoreSpecCount"))
    if kept:
        cluster.notes.append(
            f"CoreSpecCount={kept} (scontrol show node {names[0]}): subtract them from node.cores: they are reserved"
        )
