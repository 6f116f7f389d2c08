"""A run's scheme, on the ranks that it has got."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hpcbench.comm import rules
from hpcbench.comm.channel import Algorithm, Dimension, Kind, Phase
from hpcbench.comm.policy import Policy, Rule
from hpcbench.errors import UserError
from hpcbench.parallel.mesh import Mesh
from hpcbench.train.config import Run, Scheme, rules_of, setting


def make_policy(scheme: Scheme, dtypes: Mapping[str, np.dtype[Any] | None] | None = None) -> Policy:
    """The policy of a scheme.

    Parameters
    ----------
    dtypes
        Types in which messages travel, by what they hold; see `Policy`.
    """
    rules = [
        Rule(
            rule.codec,
            Dimension(rule.dimension) if rule.dimension else None,
            Phase(rule.phase) if rule.phase else None,
            Kind(rule.kind) if rule.kind else None,
            rule.feedback,
            rule.min_bytes,
            rule.between_nodes,
        )
        for rule in scheme.rules
    ]
    return Policy(algorithm=Algorithm(scheme.algorithm), default=scheme.default, rules=rules, dtypes=dtypes)


def check_nodes(run: Run, mesh: Mesh) -> None:
    """Whether what is to be encoded between nodes only can be, where the launcher has put this rank's groups.

    Raises
    ------
    UserError
        A group has more ranks on one node than on another; which launcher puts ranks where, no login node knows.
    """
    scheme = rules_of(run.scheme)
    groups = {"DP": mesh.dp, "ZERO": mesh.dp, "TP": mesh.tp, "SP": mesh.tp}  # what PP sends are messages
    for triple in rules.live(setting(run)):
        k, group = rules.applying(scheme, triple), groups.get(triple[0])
        if group and scheme[k].between_nodes and not group.topology.regular_nodes:
            raise UserError(
                f"scheme {run.scheme.name}: {rules.called(scheme, k)} is for between nodes only, and a group of "
                f"{triple[0]} has {group.topology}: sums within nodes need as many on each: change layout or "
                "ranks_per_node, or leave between_nodes out"
            )
