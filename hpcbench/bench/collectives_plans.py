"""Printing of collective plans without running them."""

from pathlib import Path

from hpcbench.bench import options
from hpcbench.bench.schemes import Wanted, make_plan
from hpcbench.comm.links import DEFAULT, Links, load
from hpcbench.comm.topology import Topology
from hpcbench.errors import UserError


def load_links(path: Path | None, topology: Topology) -> Links:
    """Load links from a file. A file for a different set of ranks is rejected."""
    if path is None:
        return DEFAULT
    links = load(path)
    reason = links.foreign(topology)
    if reason:
        raise UserError(f"{path}: {reason}. Measure these ranks with `hpcbench bench network --output FILE`")
    return links


def print_plans(wanted: Wanted, ranks: int, links: Path | None) -> int:
    """Print the plans without starting ranks, for the nodes in the link file or for a single node."""
    nodes = (load(links) if links else DEFAULT).ranks_per_node
    topology = Topology.by_label([node for node, count in enumerate(nodes) for _ in range(count)])
    if sum(nodes) != ranks:
        topology = Topology.flat(ranks)
    return show_plans(wanted, topology, load_links(links, topology))


def show_plans(wanted: Wanted, topology: Topology, links: Links) -> int:
    """Print a plan for each case and scheme."""
    for operation, nbytes in wanted.cases():
        for scheme in wanted.schemes:
            chosen = make_plan(operation, nbytes, scheme, topology, links)
            print(f"{operation} {options.format_size(nbytes)}, {scheme}: {chosen}")
    return 0
