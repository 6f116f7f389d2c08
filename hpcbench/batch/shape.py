"""How the ranks of a run lie on a node, and whether they fit: worked out once, for every launcher."""

from dataclasses import dataclass
from fractions import Fraction

from hpcbench.batch.site import Site


@dataclass(frozen=True)
class Shape:
    """What a launcher is asked for."""

    nodes: int
    ranks_per_node: int
    gpus_per_rank: Fraction
    """0 without GPUs; 1/2 where two ranks share one."""
    cores_per_rank: int
    threads: int
    """Threads a rank."""

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


def shape(site: Site, *, nodes: int, ranks_per_node: int, gpus_per_rank: Fraction | None = None) -> Shape:
    """The shape that a node of the site gives: its GPUs and cores in equal parts, no part across sockets.

    Parameters
    ----------
    gpus_per_rank
        By default one, or the part of one that is left when ranks outnumber GPUs.

    Raises
    ------
    ValueError
        The ranks do not fit the node; one line that says why.
    """
    node = site.node
    if site.device == "cpu":
        gpus = Fraction(0)
    elif gpus_per_rank is not None:
        gpus = gpus_per_rank
    else:
        gpus = Fraction(1, max(1, -(-ranks_per_node // node.gpus)))
    cores = node.usable_cores // ranks_per_node
    if node.sockets > 1 and ranks_per_node > 1 and site.launcher.visibility != "all":
        cores = node.usable_cores // node.sockets // -(-ranks_per_node // node.sockets)
    if site.oversubscribe:
        cores = max(cores, 1)
    found = Shape(nodes, ranks_per_node, gpus, cores, site.threads or max(1, cores))
    check(found, site)
    return found


def check(shape: Shape, site: Site) -> None:
    """Refuse a shape that does not fit a node.

    Raises
    ------
    ValueError
        One line that says what is too much.
    """
    node, per_node = site.node, shape.ranks_per_node
    gpus = per_node * shape.gpus_per_rank
    if gpus > node.gpus:
        raise ValueError(
            f"{per_node} ranks x {shape.gpus_per_rank} GPUs = {gpus}: a node of {site.site} has {node.gpus}"
        )
    if 0 < shape.gpus_per_rank < 1 and node.gpu_exclusive:
        raise ValueError(f"{per_node} ranks share GPUs, which on {site.site} take one process each")
    if 0 < shape.gpus_per_rank < 1 and shape.gpus_per_rank.numerator != 1:
        raise ValueError(f"{shape.gpus_per_rank} GPUs a rank: give a whole number, or one part of a GPU")
    if site.oversubscribe:
        return
    cores = node.usable_cores
    if shape.cores_per_rank < 1 or per_node * shape.cores_per_rank > cores:
        each = f" x {shape.cores_per_rank} cores" if shape.cores_per_rank > 1 else ""
        raise ValueError(f"{per_node} ranks{each}: a node of {site.site} has {cores} usable cores")
    if shape.threads > shape.cores_per_rank * node.threads_per_core:
        raise ValueError(f"{shape.threads} threads a rank: each has {shape.cores_per_rank} cores on {site.site}")
    per_socket = cores // node.sockets // shape.cores_per_rank
    if site.launcher.visibility != "all" and per_node > 1 and per_socket * node.sockets < per_node:
        raise ValueError(
            f"{per_node} ranks x {shape.cores_per_rank} cores: {per_socket} fit a socket, "
            f"{per_socket * node.sockets} a node of {site.site}"
        )
