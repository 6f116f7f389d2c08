"""Check of a run's scheme against the placement of ranks."""

from hpcbench.contract.rules import list_treatments
from hpcbench.contract.run import Run
from hpcbench.errors import UserError
from hpcbench.parallel.mesh import Mesh


def check_nodes(run: Run, mesh: Mesh) -> None:
    """Check that the placement of this rank's groups permits encoding only between nodes.

    Raises
    ------
    UserError
        A group has different numbers of ranks on its nodes, a group for one-to-all or all-to-one messages has several
        ranks on a node, or ranks that must receive the same tokens are on several nodes. These errors cannot be
        detected on a login node, where the placement of ranks is unknown.
    """
    groups = {"DP": mesh.dp, "ZERO": mesh.dp, "TP": mesh.tp, "SP": mesh.tp}  # PP uses only point-to-point messages
    for traffic, treatment in list_treatments(run.scheme, run.setting):
        if not treatment.between_nodes:
            continue
        axis, rule = traffic[3:], f"scheme {run.scheme.name}: {run.scheme.name_rule(treatment.rule)}"
        if traffic[0] == "EP" and mesh.tp.topology.nodes > 1:
            raise UserError(
                f"{rule} encodes only between nodes, but a tensor-parallel "
                "group crosses nodes, so its ranks would get different values for the same tokens: change layout or "
                "ranks_per_node, or leave between_nodes out"
            )
        group = mesh.over(axis) if axis else groups.get(traffic[0])
        if group is None:
            continue
        topology, dimension = group.topology, " ".join(traffic[:1] + axis)
        subject = f"{rule} encodes only between nodes, but a group of {dimension}"
        remedy = "change layout or ranks_per_node, or leave between_nodes out"
        if not topology.regular_nodes:
            raise UserError(
                f"{subject} has {topology}: sums within nodes require the same number of ranks on each node: {remedy}"
            )
        if axis and axis != ("e",) and run.layout.tensor != "3d" and topology.nodes > 1 < topology.per_node:
            raise UserError(
                f"{subject} has {topology}: broadcasts from one rank and sums on one rank are always encoded for "
                f"all ranks: {remedy}"
            )
