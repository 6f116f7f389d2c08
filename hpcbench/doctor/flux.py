"""Draft of a site's scheduler section for a Flux instance."""

from hpcbench.batch.schedulers.cluster import QueueFacts, Sighting
from hpcbench.batch.schedulers.flux_cluster import list_nodes, list_queues
from hpcbench.doctor.cluster import Cluster, Said


def survey(seen: Sighting) -> Cluster:
    """Survey queues and nodes."""
    cluster = Cluster("flux", seen.fact, seen.name)
    cluster.scheduler["account_option"] = Said(
        "--bank", "Flux's accounting charges banks; delete this line if the site has no accounting", sure=False
    )
    nodes, problem = list_nodes()
    if problem:
        cluster.notes.append(f"nodes are unknown: {problem}")
    queues, problem = list_queues(nodes)
    if problem:
        cluster.notes.append(f"limits of queues are unknown: {problem}")
    all_nodes = [nodes_of_queue for each in nodes.values() for nodes_of_queue in each]
    cluster.queues = queues or [QueueFacts("", "flux resource list", all_nodes, default=True)]
    return cluster
