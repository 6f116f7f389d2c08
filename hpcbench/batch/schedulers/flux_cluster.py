"""Flux instance queries: version, queues, and nodes."""

import re
import shutil

from hpcbench.batch.schedulers.attempt import ask_scheduler
from hpcbench.batch.schedulers.cluster import Nodes, QueueFacts, Sighting, report_failure
from hpcbench.batch.scripts.duration import Duration

_QUEUES = "{queuem}|{limits.timelimit}|{limits.min.nnodes}|{limits.max.nnodes}"
_RESOURCES = "{queue}|{nnodes}|{ncores}|{ngpus}"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}


def find_flux() -> Sighting:
    """Query the size of the Flux instance, its version, and its jobs."""
    size = ask_scheduler(["flux", "getattr", "size"])
    if not size.ok or not size.out.strip().isdigit():
        return report_failure("flux", "flux", size, "flux getattr size printed no number")
    jobs = ask_scheduler(["flux", "jobs", "-n", "-c", "1"])  # a broker reports a size even without a job manager
    if not jobs.ok:
        return report_failure("flux", "flux", jobs, "")
    printed = ask_scheduler(["flux", "version"])
    version = re.search(r"(?:commands|broker):\s*(\S+)", printed.out)
    fact = f"Flux {version[1] if version else 'of unknown version'}: an instance of {size.out.strip()} brokers answers"
    return Sighting("flux", True, fact, shutil.which("flux"), version=version[1] if version else None)


def list_queues(nodes: dict[str, list[Nodes]]) -> tuple[list[QueueFacts], str]:
    """Return the queues, and a message if this Flux version cannot print their limits.

    Parameters
    ----------
    nodes
        Nodes keyed by queue. Nodes under the empty name belong to all queues.
    """
    answer = ask_scheduler(["flux", "queue", "list", "-no", _QUEUES])
    problem = answer.problem
    if problem:
        answer = ask_scheduler(["flux", "queue", "list", "-no", "{queue}|||"])
    queues = []
    for line in answer.out.splitlines() if answer.ok else ():
        name, time, least, most = (part.strip() for part in (line + "|||").split("|")[:4])
        plain = name.rstrip("*")
        if not plain:
            continue  # a single, unnamed queue
        queues.append(
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
    return queues, problem


def list_nodes() -> tuple[dict[str, list[Nodes]], str]:
    """Return the nodes keyed by queue, and an error message if the call failed.

    Shared nodes are listed for each queue.
    """
    answer = ask_scheduler(["flux", "resource", "list", "-s", "all", "-no", _RESOURCES])
    nodes_by_queue: dict[str, list[Nodes]] = {}
    for line in answer.out.splitlines() if answer.ok else ():
        queues, *numbers = (part.strip() for part in line.split("|"))
        if len(numbers) != 3 or not all(number.isdigit() for number in numbers) or numbers[0] == "0":
            continue
        count, cores, gpus = map(int, numbers)
        for queue in queues.split(",") if queues else [""]:
            nodes_by_queue.setdefault(queue, []).append(Nodes(count, cores=cores // count or None, gpus=gpus // count))
    return nodes_by_queue, answer.problem


def _walltime(text: str) -> str | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    seconds = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    return str(Duration(seconds)) if seconds else None
