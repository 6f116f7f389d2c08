"""The parallel dimension of a group: by the user's patterns, by its description, or by a declared layout.

Frameworks describe their groups. A description is not unique to a group, and some groups have none. What is not known
travels exactly.
"""

import math
import re
from collections.abc import Sequence

from hpcbench.contract.interpose import Axis, Groups

UNDESCRIBED = ("", "undefined", "default_pg", "mesh_default")
"""Descriptions that PyTorch itself gives to groups of any purpose."""

_MESH = {
    "DP": "dp|ddp|fsdp|hsdp|dp_replicate|dp_shard|dp_shard_cp|dp_cp|efsdp|data|data_parallel|replicate|shard",
    "TP": "tp|tensor|tensor_parallel|model",
    "SP": "sp|sequence",
    "CP": "cp|context",
    "PP": "pp|pipe|pipeline",
    "EP": "ep|expert",
}
"""Names of mesh dimensions: PyTorch's tutorials, torchtitan, Accelerate and Lightning."""

KNOWN: tuple[tuple[re.Pattern[str], str], ...] = (
    # groups of the host beside those of GPUs, for checkpoints and flags
    (re.compile("_GLOO$"), "EXACT"),
    *((re.compile(f"^mesh_({names})$"), dimension) for dimension, names in _MESH.items()),
    (re.compile("^fsdp_reduce_scatter$"), "DP"),
    # Megatron-Core
    (re.compile("^((EXPERT_)?TENSOR_MODEL_PARALLEL_GROUP|EXPERT_TENSOR_PARALLEL_GROUP|TP_GROUP)$"), "TP"),
    (re.compile("^PIPELINE_MODEL_PARALLEL_GROUP"), "PP"),
    (re.compile("^(HIERARCHICAL_)?CONTEXT_PARALLEL_GROUP"), "CP"),
    (re.compile("^EXPERT_MODEL_PARALLEL_GROUP$"), "EP"),
    (re.compile("DATA_PARALLEL_GROUP"), "DP"),
)
"""Descriptions of frameworks; the first that matches counts."""


def dimension_of(description: str, ranks: Sequence[int], world: int, groups: Groups) -> str | None:
    """The dimension of a group; None if nothing tells.

    Parameters
    ----------
    description
        Description of the group.
    ranks
        Its ranks, as numbers in the world.
    world
        Number of ranks of the program.
    groups
        What the user has said.
    """
    for pattern in groups.groups:
        if re.search(pattern.match, description):
            return pattern.dimension
    for known, dimension in KNOWN:
        if known.search(description):
            return dimension
    if description not in UNDESCRIBED:
        return None
    if groups.layout:
        return _along(ranks, world, groups.layout)
    # all ranks of a program that has made no mesh: DDP and its like
    return "DP" if description == "default_pg" and len(ranks) == world else None


def remedy(description: str) -> str:
    """The line of a groups file that would give a group a dimension."""
    if description in UNDESCRIBED:
        return "layout: [{dimension: DP, size: ...}, ...]"
    return f"groups: [{{match: '^{re.escape(description)}$', dimension: DP}}]"


def _along(ranks: Sequence[int], world: int, layout: Sequence[Axis]) -> str | None:
    """The only dimension of a layout along which the ranks lie."""
    if math.prod(axis.size for axis in layout) != world:
        return None
    stride, found = 1, []
    for axis in reversed(layout):
        first = ranks[0]
        origin = first - first // stride % axis.size * stride
        if axis.size > 1 and list(ranks) == [origin + k * stride for k in range(axis.size)]:
            found.append(axis.dimension)
        stride *= axis.size
    return found[0] if len(found) == 1 else None
