"""Launcher-independent placement of ranks on a node, and check that they fit."""

from dataclasses import dataclass
from fractions import Fraction

from hpcbench.batch.sites.site import Node, Site
from hpcbench.contract.text import count_noun


@dataclass(frozen=True)
class Shape:
    """Number of nodes, and ranks, GPUs and cores per node."""

    nodes: int
    ranks_per_node: int
    gpus_per_rank: Fraction
    """GPUs per rank: 0 without GPUs, 1, or 1/n if n ranks share a GPU."""
    cores_per_rank: int
    threads: int
    """Number of threads per rank."""

    @property
    def ranks(self) -> int:
        """Total number of ranks."""
        return self.nodes * self.ranks_per_node

    def __str__(self) -> str:
        share = "GPU" if self.gpus_per_rank == 1 else "of a GPU"
        gpus = f"{self.gpus_per_rank} {share} and " if self.gpus_per_rank else ""
        ranks, cores = count_noun(self.ranks_per_node, "rank"), count_noun(self.cores_per_rank, "core")
        return f"{ranks} per node with {gpus}{cores} each"


@dataclass(frozen=True)
class Sets:
    """Equal resource sets of a node. The ranks in a set share the set's cores, and see only the set's GPUs."""

    per_node: int
    ranks: int
    """Ranks per set."""
    gpus: int
    """GPUs per set."""
    cores: int
    """Cores per set."""


def shape(site: Site, *, nodes: int, ranks_per_node: int) -> Shape:
    """Divide the GPUs and cores of a node equally among its ranks. No rank spans sockets.

    A rank gets one GPU, or an equal part of a GPU if there are more ranks than GPUs.

    Raises
    ------
    ValueError
        The ranks do not fit on the node. The message is one line with the reason.
    """
    node = site.node
    gpus = Fraction(1, -(-ranks_per_node // node.gpus)) if site.device == "cuda" else Fraction(0)
    if not site.oversubscribe and ranks_per_node > node.usable_cores:
        raise ValueError(
            f"{count_noun(ranks_per_node, 'rank')}, but a node of {site.site} has {node.usable_cores} usable cores"
        )
    if 0 < gpus < 1 and node.gpu_exclusive and not _shared_by_request(site):
        raise ValueError(
            f"{count_noun(ranks_per_node, 'rank')} share GPUs, but each GPU of {site.site} accepts only one process: "
            f"use at most {count_noun(node.gpus, 'rank')}, or add gpumps to -alloc_flags in the site's "
            "scheduler.directives"
        )
    sets = cut_node(ranks_per_node, gpus, site)
    cores = sets.cores // sets.ranks
    if gpus and node.cores_per_gpu:
        cores = min(cores, sets.per_node * sets.gpus * node.cores_per_gpu // ranks_per_node)
    if site.oversubscribe:
        cores = max(cores, 1)
    result = Shape(nodes, ranks_per_node, gpus, cores, site.threads or max(1, cores))
    if not site.oversubscribe:
        _check_cores(result, sets, site)
    return result


def _check_cores(shape: Shape, sets: Sets, site: Site) -> None:
    """Refuse a shape whose ranks do not have enough cores."""
    node, per_node, each = site.node, shape.ranks_per_node, shape.cores_per_rank
    fit = _count_sets(node, sets.gpus, max(1, each) * sets.ranks)
    if _keeps_to_sockets(per_node, site) and fit < sets.per_node:
        raise ValueError(
            f"{count_noun(per_node, 'rank')}: only {count_noun(fit * sets.ranks, 'rank')} can be placed on a node of "
            f"{site.site} without splitting a rank across sockets ({node.sockets} sockets with "
            f"{count_noun(node.socket_cores, 'core')} each)"
        )
    if each < 1:
        raise ValueError(f"{each} cores per rank: a rank needs at least one core")
    if shape.threads > each * node.threads_per_core:
        raise ValueError(f"{shape.threads} threads per rank, but a rank has {count_noun(each, 'core')} on {site.site}")
    asked = sets.per_node * sets.gpus
    if shape.gpus_per_rank and node.cores_per_gpu and per_node * each != asked * node.cores_per_gpu:
        of_rank = f" x {each} cores" if each > 1 else ""
        raise ValueError(
            f"{count_noun(per_node, 'rank')}{of_rank} with {count_noun(asked, 'GPU')}: {site.site} requires "
            f"{count_noun(node.cores_per_gpu, 'core')} with each GPU, {asked * node.cores_per_gpu} in all"
        )


def _shared_by_request(site: Site) -> bool:
    """Return whether the directives disable exclusive-process mode, in which a GPU accepts only one process."""
    flags = str(site.scheduler.directives.get("-alloc_flags") or "").lower().split()
    return "gpumps" in flags or "gpudefault" in flags


def _keeps_to_sockets(per_node: int, site: Site) -> bool:
    """Return whether ranks must stay on one socket. A single CPU rank, or ranks that see all GPUs, may span sockets."""
    return site.visibility != "all" and not (site.device == "cpu" and per_node == 1)


def cut_node(per_node: int, gpus: Fraction, site: Site) -> Sets:
    """Divide the ranks of a node into resource sets.

    Parameters
    ----------
    gpus
        GPUs per rank: 0, 1, or 1/n.

    Raises
    ------
    ValueError
        The ranks cannot be divided into equal sets.
    """
    node = site.node
    if not _keeps_to_sockets(per_node, site):
        return Sets(1, per_node, node.gpus if gpus else 0, node.usable_cores)
    if site.visibility == "socket":
        if len(set(node.gpus_by_socket)) > 1:
            raise ValueError(
                f"the sockets of {site.site} have {' and '.join(map(str, node.gpus_by_socket))} GPUs, so equal numbers "
                "of ranks cannot share the GPUs of their socket: set launcher.visibility to one or all"
            )
        sets, ranks = node.sockets, per_node // node.sockets
        if per_node % sets:
            raise ValueError(f"{count_noun(per_node, 'rank')} per node cannot be divided equally among {sets} sockets")
        return Sets(sets, ranks, node.gpus_by_socket[0] if gpus else 0, node.socket_cores)
    ranks = gpus.denominator if gpus else 1
    sets, remainder = divmod(per_node, ranks)
    if remainder:
        raise ValueError(f"{count_noun(per_node, 'rank')} per node cannot share GPUs in groups of {ranks}")
    set_gpus = 1 if gpus else 0
    least = -(-sets // node.sockets)  # number of sets on the fullest socket
    shares = (node.socket_cores // parts for parts in range(least, min(sets, node.socket_cores) + 1))
    cores = next((share for share in shares if share and _count_sets(node, set_gpus, share) >= sets), 0)
    return Sets(sets, ranks, set_gpus, cores)


def _count_sets(node: Node, gpus: int, cores: int) -> int:
    """Return how many sets with these GPUs and cores fit on a node. No set spans sockets."""
    by_gpus = (have // gpus if gpus else node.usable_cores for have in node.gpus_by_socket)
    return sum(min(parts, node.socket_cores // cores) for parts in by_gpus)
