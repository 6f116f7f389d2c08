"""Draft of a site's scheduler section for a Slurm cluster."""

from hpcbench.batch.schedulers.accounts import Association, list_associations
from hpcbench.batch.schedulers.cluster import Nodes, QueueFacts, Sighting
from hpcbench.batch.schedulers.slurm_cluster import (
    count_reserved_cores,
    list_nodes,
    list_partitions,
    list_qos,
    read_config,
)
from hpcbench.batch.schedulers.slurm_partition import parse_number
from hpcbench.doctor.cluster import Cluster, Said


def survey(seen: Sighting) -> Cluster:
    """Survey partitions, nodes, limits, and accounts."""
    cluster = Cluster("slurm", seen.fact, seen.name)
    config = read_config()
    qos = list_qos()
    nodes, problem = list_nodes()
    if problem:
        cluster.notes.append(f"nodes are unknown: {problem}")
    associations = _associations(cluster)
    cluster.queues, problem = list_partitions(nodes, qos, associations)
    if problem:
        cluster.notes.append(f"partitions are unknown: {problem}")
    array = config.get("MaxArraySize", "")
    if array.isdigit() and int(array) > 1:
        cluster.scheduler["max_array"] = Said(
            int(array) - 1, f"scontrol show config: MaxArraySize = {array}, which is one more than the largest index"
        )
    chosen = cluster.chosen()
    kind = chosen.kind() if chosen else None
    if chosen and kind:
        _request(cluster, chosen, kind, config.get("SelectTypeParameters", ""))
        if reserved := count_reserved_cores(chosen.name):
            node, cores = reserved
            cluster.notes.append(
                f"CoreSpecCount={cores} (scontrol show node {node}): subtract these reserved cores from node.cores"
            )
    for name, limits in qos.items():
        if limits:
            cluster.notes.append(
                f"quality of service {name}: {', '.join(f'{key} {value}' for key, value in limits.items())} "
                "(sacctmgr show qos)"
            )
    if qos:
        cluster.notes.append(
            "if jobs name a quality of service instead of a partition, write queue_option: --qos and list these names "
            "as queues"
        )
    return cluster


def _associations(cluster: Cluster) -> list[Association]:
    associations, problem = list_associations()
    accounts = list(dict.fromkeys(association.account for association in associations))
    source = f"sacctmgr show assoc: your accounts are {', '.join(accounts)}; name one in `account:`"
    unknown = f"Slurm's option; your accounts are unknown: {problem or 'sacctmgr lists no account'}"
    cluster.scheduler["account_option"] = Said("--account", source if accounts else unknown, sure=bool(accounts))
    limits = [number for association in associations if (number := parse_number(association.max_submit))]
    if limits:
        cluster.scheduler["max_submitted"] = Said(min(limits), "sacctmgr show assoc: MaxSubmit of your association")
    return associations


def _request(cluster: Cluster, partition: QueueFacts, kind: Nodes, select_type: str) -> None:
    """Set the directives for GPUs and exclusive nodes. Other jobs on a node would disturb measurements."""
    directives: dict[str, str | int | None] = {}
    sources = []
    if kind.gpus and kind.gres:
        cluster.scheduler["gpu_request"] = Said(
            "none",
            f"scheduler.directives request {kind.gres}, because a request without a model may give slices",
            sure=False,
        )
        directives["--gres"] = kind.gres
        sources.append("sinfo: MIG slices")
    elif kind.gpus:
        cluster.scheduler["gpu_request"] = Said(
            "gres",
            "sinfo lists GPUs as gres; TACC and others use none, and some sites gpus-per-node: see the site's pages",
            sure=False,
        )
    if partition.sharing != "EXCLUSIVE":
        directives["--exclusive"] = None
        sources.append(f"OverSubscribe={partition.sharing}: nodes may be shared")
    if "MEMORY" in select_type.upper():
        directives["--mem"] = 0
        sources.append(f"{select_type}: memory is allocated to jobs, and 0 requests all of it")
    if directives:
        cluster.scheduler["directives"] = Said(directives, "; ".join(sources), sure=False)
