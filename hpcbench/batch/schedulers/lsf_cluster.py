"""LSF cluster queries: daemons, settings, queues, hosts, and bsub options."""

import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hpcbench.batch.schedulers.attempt import ask_scheduler
from hpcbench.batch.schedulers.cluster import Nodes, QueueFacts, Sighting, parse_bytes, report_failure
from hpcbench.batch.scripts.duration import Duration

_ALWAYS = ("-J", "-n", "-o", "-q", "-R", "-W")
"""Options supported by every bsub. A help text that lacks these options is assumed not to list options."""


@dataclass(frozen=True)
class LsfParameters:
    """Cluster settings printed by ``bparams``."""

    default_queue: str | None
    max_array: int | None
    """Maximum job array size, or None if LSF does not print it."""
    reserves_per_task: bool
    """Whether resource requests apply per slot instead of per host."""


def find_lsf() -> Sighting:
    """Query the cluster name, and whether the daemon that accepts jobs responds."""
    answer = ask_scheduler(["lsid"])
    name = re.search(r"My cluster name is (\S+)", answer.out)
    if not answer.ok or not name:
        return report_failure("lsf", "bsub", answer, "lsid printed no cluster name")
    product = next((line.strip() for line in answer.out.splitlines() if line.strip()), "LSF")
    version = re.search(r"\b\d+(\.\d+)+", product)
    bsub = shutil.which("bsub")
    if not bsub:
        return Sighting("lsf", False, f"{product}: lsid answers, but bsub is not on PATH", None, name[1])
    queues = ask_scheduler(["bqueues", "-l"])  # lsid does not query the daemon that accepts jobs
    if not queues.ok or "QUEUE" not in queues.out:
        why = queues.problem or f"bqueues lists no queue: {queues.err.strip()[:120]}"
        fact = f"{product}: lsid answers, but the daemon that accepts jobs does not: {why}"
        return Sighting("lsf", None if queues.hung else False, fact, bsub, name[1])
    return Sighting("lsf", True, f"{product}: cluster {name[1]}", bsub, name[1], version[0] if version else None)


def read_parameters() -> LsfParameters:
    """Return the LSF settings. In some LSF variants, bparams has fewer options."""
    answer = ask_scheduler(["bparams", "-a"])
    text = answer.out if answer.ok else ask_scheduler(["bparams", "-l"]).out
    default = re.search(r"(?:DEFAULT_QUEUE\s*=|Default Queues:)\s*(\S+)", text) or re.search(
        r"Default Queues:\s*(\S+)", ask_scheduler(["bparams"]).out
    )
    array = re.search(r"(?:MAX_JOB_ARRAY_SIZE\s*=|[Mm]aximum size of a job array:?)\s*(\d+)", text)
    return LsfParameters(
        default[1] if default else None,
        int(array[1]) or None if array else None,
        bool(re.search(r"RESOURCE_RESERVE_PER_TASK\s*=\s*[Yy]", text)),
    )


def list_bsub_options() -> set[str]:
    """Return the options in bsub's help text. The result is empty if the help text does not list options."""
    answer = ask_scheduler(["bsub", "-h"])  # some LSF variants print the help text and then fail
    listed = set(re.findall(r"(?<![\w-])-[A-Za-z]\w*", f"{answer.out}\n{answer.err}"))
    return listed if listed.issuperset(_ALWAYS) else set()


def list_queues(hosts: Sequence[Nodes], default: str | None, *, slots: bool) -> tuple[list[QueueFacts], str]:
    """Return the queues, and an error message if the call failed.

    Parameters
    ----------
    hosts
        Kinds of hosts in the cluster.
    default
        Name of the default queue, if printed by bparams.
    slots
        Whether jobs request slots, so that slot limits also limit the number of nodes.
    """
    answer = ask_scheduler(["bqueues", "-l"])
    blocks = re.split(r"^QUEUE:\s*", answer.out, flags=re.MULTILINE)[1:]
    return [_bounded(_queue(block, hosts, default, slots=slots)) for block in blocks], answer.problem


def list_hosts() -> tuple[list[Nodes], list[str], str]:
    """Return host kinds, hosts with GPUs in MIG mode, and an error message if the call failed."""
    answer = ask_scheduler(["lshosts", "-w"])
    gpus, in_slices = _gpus()
    counts: Counter[tuple[int, int | None, tuple[str, ...], tuple[int, ...]]] = Counter()
    for line in answer.out.splitlines():
        cells = line.split()
        if len(cells) < 8 or cells[0] == "HOST_NAME" or cells[7] != "Yes" or not cells[4].isdigit():
            continue  # not a server, or a server that is down
        models, places = gpus.get(cells[0], ((), ()))
        counts[int(cells[4]), int(parse_bytes(cells[5])) >> 30 or None, models, places] += 1
    hosts = [
        Nodes(
            count,
            cores=cores,
            memory_gb=memory,
            gpus=len(models),
            gpu=" and ".join(dict.fromkeys(models)) or None,
            socket_gpus=places if len(places) > 1 else None,
            sockets=len(places) if len(places) > 1 else None,
            doubt=f"{len(set(models))} GPU models on a host: write the number of GPUs of one model"
            if len(set(models)) > 1
            else "",
        )
        for (cores, memory, models, places), count in counts.items()
    ]
    return hosts, in_slices, answer.problem


def _gpus() -> tuple[dict[str, tuple[tuple[str, ...], tuple[int, ...]]], list[str]]:
    """Return each host's GPU models and GPUs per NUMA node, and the hosts with GPU slices.

    Only the first row of a host contains its name. GPUs in MIG mode are omitted.
    """
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    in_slices: dict[str, None] = {}
    answer = ask_scheduler(["lshosts", "-gpu"])
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


def _bounded(line: QueueFacts) -> QueueFacts:
    """Cap a queue's maximum nodes per job at the number of nodes of this kind in the cluster."""
    kind = line.kind()
    if kind is None or (line.max_nodes is not None and line.max_nodes <= kind.count):
        return line
    return replace(line, max_nodes=kind.count)


def _queue(block: str, hosts: Sequence[Nodes], default: str | None, *, slots: bool) -> QueueFacts:
    name = (block.split() or ["?"])[0]
    notes = []
    users, where, needs, policies = (
        re.search(rf"^{key}:\s*(.*\S)", block, re.MULTILINE)
        for key in ("USERS", "HOSTS", "RES_REQ", "SCHEDULING POLICIES")
    )
    for what, match in (("for users", users), ("on hosts", where)):
        if match and match[1] != "all":
            notes.append(f"{what} {match[1][:80]}")
    status = re.search(r"\b(Open|Closed):(Active|Inact\w*)", block)
    cores = kind.cores if (kind := QueueFacts(name, "", hosts).kind()) else None
    most = _most_slots(block, notes) if slots else None
    max_nodes = max(1, most // cores) if most and cores else None
    if most and cores:
        notes.append(f"at most {most} slots per job, {cores} cores per host")
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
        sharing=policies[1] if policies else "",
        notes=notes,
    )


def _run_limit(block: str, notes: list[str]) -> str | None:
    """Return the maximum walltime of a queue."""
    cell = _maximum(block, "RUNLIMIT")
    try:
        return str(Duration.of_lsf(cell)) if cell else None
    except ValueError as error:
        notes.append(f"RUNLIMIT: {error}")
    return None


def _most_slots(block: str, notes: list[str]) -> int | None:
    """Return the maximum slots per job. TASKLIMIT (PROCLIMIT in older LSF) lists minimum, default and maximum."""
    cells = [cell for head in ("TASKLIMIT", "PROCLIMIT") if (cell := _maximum(block, head))]
    bounds = [int(cell.split()[-1]) for cell in cells if re.fullmatch(r"\d+(\s+\d+){0,2}", cell)]
    notes += [f"{name} {slots} slots" for name, slots in _slot_limits(block).items()]
    return min([*bounds, *_slot_limits(block).values()], default=None)


def _slot_limits(block: str) -> dict[str, int]:
    """Return the queue's slot limits, in total and per user, from its parameter table."""
    lines = block.splitlines()
    for heads, values in pairwise(lines):
        row = dict(zip(heads.split(), values.split(), strict=False))
        if heads.split()[:1] == ["PRIO"] and "JL/U" in row:
            return {name: int(row[name]) for name in ("MAX", "JL/U") if row[name].isdigit()}
    return {}


def _maximum(block: str, head: str) -> str:
    """Return the maximum (not the default) printed below a column header, or an empty string if there is none."""
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
