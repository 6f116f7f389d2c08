"""Prints plans without carrying them out."""

from pathlib import Path

from hpcbench.bench import options
from hpcbench.bench.schemes import Wanted, planned
from hpcbench.comm.links import DEFAULT, Links, load
from hpcbench.comm.topology import Topology
from hpcbench.errors import UserError


def chosen_by(path: Path | None, topology: Topology) -> Links:
    """The links of a file. A file that was measured on other ranks is refused."""
    if path is None:
        return DEFAULT
    found = load(path)
    reason = found.foreign(topology)
    if reason:
        raise UserError(f"{path}: {reason}: measure these ranks with `hpcbench bench network --output FILE`")
    return found


def print_plans(wanted: Wanted, ranks: int, links: Path | None) -> int:
    """Print the plans without any rank: on the nodes that the file names, else on one node."""
    found = load(links) if links else DEFAULT
    nodes = found.ranks_per_node
    topology = Topology.by_label([node for node, count in enumerate(nodes) for _ in range(count)])
    if sum(nodes) != ranks:
        topology = Topology.flat(ranks)
    return show_plans(wanted, topology, chosen_by(links, topology))


def show_plans(wanted: Wanted, topology: Topology, links: Links) -> int:
    """A plan for each case and scheme."""
    for operation, nbytes in wanted.cases():
        for scheme in wanted.schemes:
            chosen = planned(operation, nbytes, scheme, topology, links)
            print(f"{operation} {options.spelled(nbytes)}, {scheme}: {chosen}")
    return 0
