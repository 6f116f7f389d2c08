"""The fake `flux run`, which starts a given number of tasks in total or per node, but not both."""

import argparse
import os

from fakes.flux.ids import parse_id
from fakes.flux.options import make_parser, parse_seconds
from fakes.programs import Call
from fakes.ranks import Names, Rank, find_allocation, launch
from fakes.state import Config, Job

_RANK = ("FLUX_TASK_RANK",)
_OUTSIDE = "flux-run: ERROR: Unable to connect to Flux: ENOENT: No such file or directory"


def run(call: Call, argv: list[str]) -> int:
    """Start tasks on the job's nodes."""
    arguments = make_parser("run").parse_args(argv)
    config = call.store.config
    per_resource = arguments.tasks_per_node or arguments.tasks_per_core or arguments.cores is not None
    per_task = arguments.count is not None or arguments.cores_each is not None or arguments.gpus_each
    if (per_resource or arguments.gpus_per_node is not None) and per_task:
        raise ValueError("Per-resource options can't be used with per-task options. (See --help for details)")
    if arguments.time_limit:
        parse_seconds(arguments.time_limit, bare=60.0)
    if not arguments.command:
        raise ValueError("job command and arguments are missing")
    enclosing = os.environ.get("FLUX_ENCLOSING_ID", "")
    job = find_allocation(call.store, str(parse_id(enclosing)) if enclosing else None, _OUTSIDE)
    ranks = _place_ranks(arguments, job, config)
    variables = dict(text.split("=", 1) for text in arguments.env if "=" in text)
    shown = {text.partition("=")[0]: text.partition("=")[2] for text in arguments.setopt}
    narrows = bool(config.gpus) and shown.get("gpu-affinity") != "off"
    if shown.get("gpu-affinity") != "per-task":
        ranks = [Rank(rank.host, rank.local_rank, rank.local_size, _list_gpus(rank.host, ranks)) for rank in ranks]
    variables |= {"FLUX_JOB_ID": enclosing, "FLUX_JOB_SIZE": str(len(ranks))}
    variables |= {"FLUX_JOB_NNODES": str(len({rank.host for rank in ranks}))}
    names = Names(_RANK, (), ("FLUX_TASK_LOCAL_ID",), (), narrows)
    return launch(call.store, ranks, arguments.command, variables, names)


def _place_ranks(arguments: argparse.Namespace, job: Job, config: Config) -> list[Rank]:
    hosts = list(job.places)
    nodes = arguments.nodes or (len(hosts) if arguments.tasks_per_node or arguments.tasks_per_core else 0)
    cores = arguments.cores_each or 1
    if arguments.tasks_per_node or arguments.tasks_per_core:
        each = arguments.tasks_per_node or arguments.tasks_per_core * config.cores
        total = each * nodes
        gpus = arguments.gpus_per_node or (config.gpus if arguments.exclusive or arguments.nodes else 0)
        gpus_each = gpus / each
    else:
        total = arguments.count or max(1, nodes)
        nodes = nodes or -(-total * cores // config.cores)
        each, gpus_each = -(-total // nodes), float(arguments.gpus_each or 0)
    if nodes > len(hosts) or each * cores > config.cores or each * gpus_each > config.gpus:
        raise ValueError("[Errno 22] unsatisfiable request")
    ranks: list[Rank] = []
    for k in range(total):
        host, local = divmod(k, each)
        first = int(local * gpus_each)
        seen = range(first, max(first + int(gpus_each), first + bool(gpus_each)))
        ranks.append(Rank(hosts[host], local, min(each, total - host * each), list(seen)))
    return ranks


def _list_gpus(host: str, ranks: list[Rank]) -> list[int]:
    """Return the GPUs of all tasks on this host. Flux makes all GPUs visible to each task."""
    return sorted({gpu for rank in ranks if rank.host == host for gpu in rank.gpus})
