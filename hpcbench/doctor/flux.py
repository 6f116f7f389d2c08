"""Survey of a Flux instance from a login node."""

import re

from hpcbench.batch.scripts.duration import Duration
from hpcbench.doctor.ask import ask
from hpcbench.doctor.cluster import Cluster, Nodes, QueueFacts, Said
from hpcbench.doctor.scheduler import Sighting

_QUEUES = "{queuem}|{limits.timelimit}|{limits.min.nnodes}|{limits.max.nnodes}"
_RESOURCES = "{queue}|{nnodes}|{ncores}|{ngpus}"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}


def survey(seen: Sighting) -> Cluster:
    """Survey queues and nodes."""
    cluster = Cluster("flux", seen.fact, seen.name)
    cluster.scheduler["account_option"] = Said(
        "--bank", "Flux's accounting names banks; without it, delete the line", sure=False
    )
    nodes = _nodes(cluster)
    answer = ask(["flux", "queue", "list", "-no", _QUEUES])
    if not answer.ok:
        cluster.notes.append(f"limits of queues are unknown: {answer.problem}")
        answer = ask(["flux", "queue", "list", "-no", "{queue}|||"])
    for line in answer.out.splitlines() if answer.ok else ():
        name, time, least, most = (part.strip() for part in (line + "|||").split("|")[:4])
        if not name.rstrip("*"):
            continue  # the one queue without a name, which needs none
        plain = name.rstrip("*")
        cluster.queues.append(
            QueueFacts(
                plain,
                "flux queue list",
                nodes.get(plain) or nodes.get("") or [],
                default=name.endswith("*"),
                min_nodes=int(least) if least.isdigit() and int(least) > 1 else None,
                max_nodes=int(most) if most.isdigit() and int(most) > 0 else None,
                max_walltime=_walltime(time),
            )
        )
    if not cluster.queues:
        all_nodes = [nodes_of_queue for each in nodes.values() for nodes_of_queue in each]
        cluster.queues.append(QueueFacts("", "flux resource list", all_nodes, default=True))
    return cluster


def _nodes(cluster: Cluster) -> dict[str, list[Nodes]]:
    """Return the nodes by queue. A resource of several queues is listed for each of them."""
    answer = ask(["flux", "resource", "list", "-s", "all", "-no", _RESOURCES])
    if answer.problem:
        cluster.notes.append(f"nodes are unknown: {answer.problem}")
    nodes_by_queue: dict[str, list[Nodes]] = {}
    for line in answer.out.splitlines() if answer.ok else ():
        queues, *numbers = (part.strip() for part in line.split("|"))
        if len(numbers) != 3 or not all(number.isdigit() for number in numbers) or numbers[0] == "0":
            continue
        count, cores, gpus = map(int, numbers)
        for queue in queues.split(",") if queues else [""]:
            nodes_by_queue.setdefault(queue, []).append(Nodes(count, cores=cores // count or None, gpus=gpus // count))
    return nodes_by_queue


def _walltime(text: str) -> str | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    seconds = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    return str(Duration(seconds)) if seconds else None
