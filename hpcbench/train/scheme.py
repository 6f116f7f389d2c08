"""Whether a run's scheme can work on the ranks that it has got."""

from hpcbench.contract import rules
from hpcbench.contract.run import Run
from hpcbench.contract.traffic import live
from hpcbench.errors import UserError
from hpcbench.parallel.mesh import Mesh


def check_nodes(run: Run, mesh: Mesh) -> None:
    """Whether what is to be encoded between nodes only can be, where the launcher has put this rank's groups.

    Raises
    ------
    UserError
        A group has more ranks on one node than on another; which launcher puts ranks where, no login node knows.
    """
    listed = run.scheme.all_rules
    groups = {"DP": mesh.dp, "ZERO": mesh.dp, "TP": mesh.tp, "SP": mesh.tp}  # what PP sends are messages
    for triple in live(run.setting):
        k, group = rules.applying(listed, triple), groups.get(triple[0])
        if group and listed[k].between_nodes and not group.topology.regular_nodes:
            raise UserError(
                f"scheme {run.scheme.name}: {rules.called(listed, k)} is for between nodes only, and a group of "
                f"{triple[0]} has {group.topology}: sums within nodes need as many on each: change layout or "
                "ranks_per_node, or leave between_nodes out"
            )
