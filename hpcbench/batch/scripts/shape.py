"""Launcher-independent placement of ranks on a node, and check that they fit."""

from dataclasses import dataclass
from fractions import Fraction

from hpcbench.batch.sites.site import Node, Site


@dataclass(frozen=True)
class Shape:
    """Number of nodes, and ranks, GPUs and cores per node."""

    nodes: int
    ranks_per_node: int
    gpus_per_rank: Fraction
    """GPUs per rank: 0 without GPUs, 1/2 if two ranks share a GPU."""
    cores_per_rank: int
    threads: int
    """Number of threads per rank."""

    @property
    def ranks(self) -> int:
        """Total number of ranks."""
        return self.nodes * self.ranks_per_node

    def __str__(self) -> str:
        gpus = f"{_gpus(self.gpus_per_rank)} and " if self.gpus_per_rank else ""
        return f"{_count(self.ranks_per_node, 'rank')} per node with {gpus}{_count(self.cores_per_rank, 'core')} each"


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


def shape(
    site: Site,
    *,
    nodes: int,
    ranks_per_node: int,
    gpus_per_rank: Fraction | None = None,
    cores_per_rank: int | None = None,
) -> Shape:
    """Divide the GPUs and cores of a node equally among its ranks. No rank spans sockets.

    Parameters
    ----------
    site
        The site.
    nodes, ranks_per_node
        Number of nodes, and number of ranks per node.
    gpus_per_rank
        GPUs per rank. The default is 1, or an equal part of a GPU if there are more ranks than GPUs.
    cores_per_rank
        Cores per rank. The default is an equal part of all cores.

    Raises
    ------
    ValueError
        The ranks do not fit on the node. The message is one line with the reason.
    """
    node = site.node
    if site.device == "cpu":
        gpus = Fraction(0)
    elif gpus_per_rank is not None:
        gpus = gpus_per_rank
    else:
        gpus = Fraction(1, max(1, -(-ranks_per_node // node.gpus)))
    _check_totals(ranks_per_node, gpus, cores_per_rank or 1, site)
    cores = cores_per_rank
    if cores is None:
        sets = _cut(ranks_per_node, gpus, site)
        cores = sets.cores // sets.ranks
        if gpus and node.cores_per_gpu:
            cores = min(cores, sets.per_node * sets.gpus * node.cores_per_gpu // ranks_per_node)
        if site.oversubscribe:
            cores = max(cores, 1)
    result = Shape(nodes, ranks_per_node, gpus, cores, site.threads or max(1, cores))
    check(result, site)
    return result


def resource_sets(shape: Shape, site: Site) -> Sets:
    """Divide the ranks of a node into resource sets.

    Raises
    ------
    ValueError
        The ranks cannot be divided into equal sets.
    """
    return _cut(shape.ranks_per_node, shape.gpus_per_rank, site)


def check(shape: Shape, site: Site) -> None:
    """Refuse a shape that does not fit on a node.

    Raises
    ------
    ValueError
        The shape does not fit. The message is one line with the reason.
    """
    node, per_node, each = site.node, shape.ranks_per_node, shape.cores_per_rank
    _check_totals(per_node, shape.gpus_per_rank, each, site)
    sets = resource_sets(shape, site)
    if site.oversubscribe:
        return
    what = _ranks(per_node, each)
    fit = _count_sets(node, sets.gpus, max(1, each) * sets.ranks)
    if _keeps_to_sockets(per_node, site) and fit < sets.per_node:
        raise ValueError(
            f"{what}: only {_count(fit * sets.ranks, 'rank')} can be placed on a node of {site.site} without splitting "
            f"a rank across sockets ({node.sockets} sockets with {_count(node.socket_cores, 'core')} each)"
        )
    if each < 1:
        raise ValueError(f"{each} cores per rank: a rank needs at least one core")
    if shape.threads > each * node.threads_per_core:
        raise ValueError(f"{shape.threads} threads per rank, but a rank has {_count(each, 'core')} on {site.site}")
    asked = sets.per_node * sets.gpus
    if shape.gpus_per_rank and node.cores_per_gpu and per_node * each != asked * node.cores_per_gpu:
        raise ValueError(
            f"{what} with {_count(asked, 'GPU')}: {site.site} requires {_count(node.cores_per_gpu, 'core')} with each "
            f"GPU, {asked * node.cores_per_gpu} in all"
        )


def _check_totals(per_node: int, each: Fraction, cores: int, site: Site) -> None:
    """Check that the totals fit on a node, whatever the resource sets."""
    node, total = site.node, per_node * each
    if each < 0 or (each < 1 and each.numerator not in (0, 1)) or (each > 1 and each.denominator != 1):
        raise ValueError(f"{each} GPUs per rank: give a whole number, or a fraction 1/n")
    if total > node.gpus:
        raise ValueError(
            f"{_count(per_node, 'rank')} x {_gpus(each)} = {total}, but a node of {site.site} has "
            f"{_count(node.gpus, 'GPU')}"
        )
    if not site.oversubscribe and per_node * max(1, cores) > node.usable_cores:
        raise ValueError(f"{_ranks(per_node, cores)}, but a node of {site.site} has {node.usable_cores} usable cores")
    if 0 < each < 1 and node.gpu_exclusive and not _shared_by_request(site):
        raise ValueError(
            f"{_count(per_node, 'rank')} share GPUs, but each GPU of {site.site} accepts only one process: use at most "
            f"{_count(node.gpus, 'rank')}, or add gpumps to -alloc_flags in the site's scheduler.directives"
        )
    fit = _count_sets(node, int(each) or 1, 0)
    if each and _keeps_to_sockets(per_node, site) and per_node * max(each, Fraction(1)) <= node.gpus and fit < per_node:
        most, remedy = (f"only {_count(fit, 'rank')}", f"use {fit}, or set") if fit else ("no rank", "set")
        raise ValueError(
            f"{_count(per_node, 'rank')} x {_gpus(each)}: {most} can be placed on a node of {site.site} without "
            f"splitting a rank across sockets (sockets with {' and '.join(map(str, node.gpus_by_socket))} GPUs): "
            f"{remedy} launcher.visibility to all"
        )


def _shared_by_request(site: Site) -> bool:
    """Return whether the directives disable exclusive-process mode, in which a GPU accepts only one process."""
    flags = str(site.scheduler.directives.get("-alloc_flags") or "").lower().split()
    return "gpumps" in flags or "gpudefault" in flags


def _keeps_to_sockets(per_node: int, site: Site) -> bool:
    """Return whether ranks must stay on one socket. A single CPU rank, or ranks that see all GPUs, may span sockets."""
    return site.visibility != "all" and not (site.device == "cpu" and per_node == 1)


def _cut(per_node: int, gpus: Fraction, site: Site) -> Sets:
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
            raise ValueError(f"{_count(per_node, 'rank')} per node cannot be divided equally among {sets} sockets")
        if ranks * gpus > node.gpus_by_socket[0]:
            raise ValueError(
                f"{_count(ranks, 'rank')} x {_gpus(gpus)} on a socket, but a socket of {site.site} has "
                f"{_count(node.gpus_by_socket[0], 'GPU')}"
            )
        return Sets(sets, ranks, node.gpus_by_socket[0] if gpus else 0, node.socket_cores)
    ranks = gpus.denominator if gpus else 1
    sets, remainder = divmod(per_node, ranks)
    if remainder:
        raise ValueError(f"{_count(per_node, 'rank')} per node cannot share GPUs in groups of {ranks}")
    set_gpus = max(1, int(gpus)) if gpus else 0
    least = -(-sets // node.sockets)  # number of sets on the fullest socket
    shares = (node.socket_cores // parts for parts in range(least, min(sets, node.socket_cores) + 1))
    cores = next((share for share in shares if share and _count_sets(node, set_gpus, share) >= sets), 0)
    return Sets(sets, ranks, set_gpus, cores)


def _count_sets(node: Node, gpus: int, cores: int) -> int:
    """Return how many sets with these GPUs and cores fit on a node. No set spans sockets."""
    by_gpus = (have // gpus if gpus else node.usable_cores for have in node.gpus_by_socket)
    by_cores = node.socket_cores // cores if cores else node.usable_cores + node.gpus
    return sum(min(parts, by_cores) for parts in by_gpus)


def _ranks(per_node: int, cores: int) -> str:
    return f"{_count(per_node, 'rank')}{f' x {cores} cores' if cores > 1 else ''}"


def _gpus(number: Fraction) -> str:
    return _count(number, "GPU") if number >= 1 else f"{number} of a GPU"


def _count(number: Fraction | int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
