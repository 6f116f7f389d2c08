"""Survey of an LSF cluster from a login node."""

import re
import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

from hpcbench.batch.scripts.duration import Duration
from hpcbench.doctor.ask import ask
from hpcbench.doctor.cluster import Cluster, Nodes, QueueFacts, Said
from hpcbench.doctor.scheduler import Sighting

_UNITS = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 2.0**10}


def survey(seen: Sighting) -> Cluster:
    """Survey queues, hosts and limits."""
    cluster = Cluster("lsf", seen.fact, seen.name)
    hosts = _hosts(cluster)
    parameters = _parameters()
    default = re.search(r"(?:DEFAULT_QUEUE\s*=|Default Queues:)\s*(\S+)", parameters) or re.search(
        r"Default Queues:\s*(\S+)", ask(["bparams"]).out
    )
    answer = ask(["bqueues", "-l"])
    if answer.problem:
        cluster.notes.append(f"queues are unknown: {answer.problem}")
    blocks = re.split(r"^QUEUE:\s*", answer.out, flags=re.MULTILINE)[1:]
    slots = not (shutil.which("jsrun") or shutil.which("lrun"))  # which ask for whole nodes
    cluster.queues = [_line(block, hosts, default[1] if default else None, slots=slots) for block in blocks]
    array = re.search(r"(?:MAX_JOB_ARRAY_SIZE\s*=|[Mm]aximum size of a job array:?)\s*(\d+)", parameters)
    if array and int(array[1]):
        cluster.scheduler["max_array"] = Said(int(array[1]), "bparams: MAX_JOB_ARRAY_SIZE")
    else:
        cluster.notes.append(
            "bparams names no MAX_JOB_ARRAY_SIZE (LSF's own default is 1000): no job arrays until max_array is set"
        )
    cluster.queues = [_bounded(line) for line in cluster.queues]
    refused = _refused(cluster)
    if re.search(r"RESOURCE_RESERVE_PER_TASK\s*=\s*[Yy]", parameters):
        cluster.notes.append(
            "bparams: RESOURCE_RESERVE_PER_TASK=Y: -gpu num= counts for each slot: set gpu_request: none and "
            'directives: {-gpu: "num=N/host:j_exclusive=yes"}, with the GPUs of a node for N'
        )
    if refused:
        cluster.scheduler["refuses"] = Said(refused, "bsub -h does not list them", sure=False)
    _request(cluster, answer.out, blocks)
    return cluster


_SPARED = ("-wa", "-wt", "-rn", "-cwd", "-ti")
"""Options of ours that relatives of LSF may lack, and that scripts can do without."""
_ALWAYS = ("-J", "-n", "-o", "-q", "-R", "-W")
"""Options that every bsub has: a text without them does not list the options."""


def _refused(cluster: Cluster) -> list[str]:
    """Return the options of ours that the help of bsub does not list."""
    answer = ask(["bsub", "-h"])  # relatives of LSF end with an error after it
    listed = set(re.findall(r"(?<![\w-])-[A-Za-z]\w*", f"{answer.out}\n{answer.err}"))
    if not listed.issuperset(_ALWAYS):
        cluster.notes.append(
            "bsub -h lists no options: if submit is refused for one of -wa -wt -rn -cwd -ti, name it in refuses"
        )
        return []
    return [option for option in _SPARED if option not in listed]


def _bounded(line: QueueFacts) -> QueueFacts:
    """Return the queue with no more nodes in a job than the cluster has of their kind."""
    kind = line.kind()
    if kind is None or (line.max_nodes is not None and line.max_nodes <= kind.count):
        return line
    return replace(line, max_nodes=kind.count)


def _parameters() -> str:
    """Return LSF's settings. Variants of LSF have fewer options of bparams."""
    answer = ask(["bparams", "-a"])
    return answer.out if answer.ok else ask(["bparams", "-l"]).out


def _exclusive(cluster: Cluster, blocks: list[str]) -> bool:
    """Return whether the chosen queue allows exclusive hosts."""
    chosen = cluster.chosen()
    block = next((block for block in blocks if chosen and block.split()[:1] == [chosen.name]), "")
    return bool(re.search(r"^SCHEDULING POLICIES:.*\bEXCLUSIVE\b", block, re.MULTILINE))


def _request(cluster: Cluster, queues: str, blocks: list[str]) -> None:
    lrun, jsrun = shutil.which("lrun"), shutil.which("jsrun")
    option = (
        Said("-G", f"{lrun} is LLNL's, whose LSF charges a group", sure=False)
        if lrun
        else Said("-P", "LSF charges a project at most sites; LLNL's takes -G", sure=False)
    )
    cluster.scheduler["account_option"] = option
    if jsrun or lrun:
        cluster.scheduler["allocation"] = Said(
            "nodes", f"{jsrun or lrun}: IBM's job step manager, so whole nodes by -nnodes"
        )
        return
    cluster.scheduler["allocation"] = Said("slots", "no jsrun on PATH, so slots by -n with span[ptile=]", sure=False)
    chosen = cluster.chosen()
    kind = chosen.kind() if chosen else None
    if kind and kind.gpus:
        cluster.scheduler["gpu_request"] = Said("gpu", "lshosts -gpu shows GPUs, which bsub -gpu asks for", sure=False)
    if _exclusive(cluster, blocks):
        cluster.scheduler["directives"] = Said({"-x": None}, "bqueues -l: EXCLUSIVE, so hosts of one's own")
    elif queues:
        cluster.notes.append("bqueues -l: the queue is not EXCLUSIVE: -x is refused, and others may share the hosts")


def _hosts(cluster: Cluster) -> list[Nodes]:
    answer = ask(["lshosts", "-w"])
    if answer.problem:
        cluster.notes.append(f"hosts are unknown: {answer.problem}")
    gpus, in_slices = _gpus()
    if in_slices:
        number = "its GPUs are" if len(in_slices) == 1 else "their GPUs are"
        cluster.notes.append(
            f"lshosts -gpu: {', '.join(in_slices)}: {number} in MIG mode and not counted: a job would get slices"
        )
    counts: Counter[tuple[int, int | None, tuple[str, ...], tuple[int, ...]]] = Counter()
    for line in answer.out.splitlines():
        cells = line.split()
        if len(cells) < 8 or cells[0] == "HOST_NAME" or cells[7] != "Yes" or not cells[4].isdigit():
            continue  # no server, or one that is down
        models, places = gpus.get(cells[0], ((), ()))
        counts[int(cells[4]), _gigabytes(cells[5]), models, places] += 1
    return [
        Nodes(
            count,
            cores=cores,
            memory_gb=memory,
            gpus=len(models),
            gpu=" and ".join(dict.fromkeys(models)) or None,
            socket_gpus=places if len(places) > 1 else None,
            sockets=len(places) if len(places) > 1 else None,
            doubt=f"{len(set(models))} models in a host: write the number of one" if len(set(models)) > 1 else "",
        )
        for (cores, memory, models, places), count in counts.items()
    ]


def _gpus() -> tuple[dict[str, tuple[tuple[str, ...], tuple[int, ...]]], list[str]]:
    """Return each host's GPU models and GPUs per NUMA node, and the hosts with slices of GPUs.

    Only the first row of a host names it. GPUs in MIG mode are left out.
    """
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    in_slices: dict[str, None] = {}
    answer = ask(["lshosts", "-gpu"])
    lines = answer.out.splitlines() if answer.ok else []
    heads = lines[0].split() if lines else []
    if "numa_id" not in heads or "gpu_model" not in heads:
        return {}, []
    host = ""
    for line in lines[1:]:
        cells = line.split()
        if line[:1].strip() and len(cells) > 1:
            host = cells.pop(0)
        if host and len(cells) >= len(heads) - 1 and cells[0].isdigit():
            row = dict(zip(heads[1:], cells, strict=False))
            if row.get("mig", "").upper() == "Y":
                in_slices[host] = None
            else:
                rows[host].append((row["gpu_model"], row["numa_id"]))
    places = {
        host: (tuple(model for model, _ in gpus), tuple(Counter(sorted(place for _, place in gpus)).values()))
        for host, gpus in rows.items()
    }
    return places, list(in_slices)


def _gigabytes(text: str) -> int | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])", text)
    return int(float(match[1]) * _UNITS[match[2]]) or None if match else None


def _line(block: str, hosts: list[Nodes], default: str | None, *, slots: bool) -> QueueFacts:
    name = (block.split() or ["?"])[0]
    notes = []
    users, where, needs = (
        re.search(rf"^{key}:\s*(.*\S)", block, re.MULTILINE) for key in ("USERS", "HOSTS", "RES_REQ")
    )
    for what, match in (("for users", users), ("on hosts", where)):
        if match and match[1] != "all":
            notes.append(f"{what} {match[1][:80]}")
    status = re.search(r"\b(Open|Closed):(Active|Inact\w*)", block)
    cores = kind.cores if (kind := QueueFacts(name, "", hosts).kind()) else None
    most = _most_slots(block, notes) if slots else None
    max_nodes = max(1, most // cores) if most and cores else None
    if most and cores:
        notes.append(f"at most {most} slots a job, {cores} cores a host")
    if needs:
        notes.append(f"RES_REQ {needs[1][:80]}")
    if needs and re.search(r"span\[\s*hosts\s*=\s*1\s*\]", needs[1]):
        max_nodes = 1
    return QueueFacts(
        name,
        f"bqueues -l {name}",
        hosts,
        default=name == default or (default is None and "default queue" in block.lower()),
        open=not status or status[1] == "Open",
        max_nodes=max_nodes,
        max_walltime=_run_limit(block, notes),
        notes=notes,
    )


def _run_limit(block: str, notes: list[str]) -> str | None:
    """Return the longest walltime that the queue accepts."""
    cell = _maximum(block, "RUNLIMIT")
    try:
        return str(Duration.of_lsf(cell)) if cell else None
    except ValueError as error:
        notes.append(f"RUNLIMIT: {error}")
    return None


def _most_slots(block: str, notes: list[str]) -> int | None:
    """Return the maximum slots of a job. TASKLIMIT (PROCLIMIT in older LSF) lists minimum, default and maximum."""
    cells = [cell for head in ("TASKLIMIT", "PROCLIMIT") if (cell := _maximum(block, head))]
    bounds = [int(cell.split()[-1]) for cell in cells if re.fullmatch(r"\d+(\s+\d+){0,2}", cell)]
    notes += [f"{name} {slots} slots" for name, slots in _slot_limits(block).items()]
    return min([*bounds, *_slot_limits(block).values()], default=None)


def _slot_limits(block: str) -> dict[str, int]:
    """Return the slot limits of the queue and of one user, from its table of parameters."""
    lines = block.splitlines()
    for heads, values in pairwise(lines):
        row = dict(zip(heads.split(), values.split(), strict=False))
        if heads.split()[:1] == ["PRIO"] and "JL/U" in row:
            return {name: int(row[name]) for name in ("MAX", "JL/U") if row[name].isdigit()}
    return {}


def _maximum(block: str, head: str) -> str:
    """Return the maximum below a head, not the default; empty if there is none."""
    for heads, values in pairwise(block.rpartition("MAXIMUM LIMITS:")[2].splitlines()):
        starts = [match.start() for match in re.finditer(r"\S+", heads)]
        names = heads.split()
        if head not in names:
            continue
        place = names.index(head)
        begin = starts[place] if place else 0
        end = starts[place + 1] if place + 1 < len(starts) else None
        return values[begin:end].strip()
    return ""
