"""Parallel dimension of a group, found from user patterns, the group's description, or a declared layout.

Frameworks assign descriptions to their groups. Several groups may share a description, and some groups have none. A
group without a description counts as data-parallel if a framework sums gradients over it. The messages of a group with
unknown dimension are not encoded.
"""

import math
import re
from collections.abc import Sequence
from functools import cache

from hpcbench.contract.interpose import Axis, Groups

UNDESCRIBED = ("", "undefined", "default_pg", "mesh_default")
"""Descriptions that PyTorch assigns to groups regardless of their purpose."""
SEVERAL = "several dimensions"
"""Name of a group with all ranks if the program's mesh has several dimensions."""
_UNNAMED = re.compile(f"dim_[0-9]+|{SEVERAL}")
"""Names of mesh dimensions that do not indicate a purpose."""

_MESH = {
    "DP": "dp|ddp|fsdp|hsdp|dp_replicate|dp_shard|dp_shard_cp|dp_shard_mod_ep|dp_cp|efsdp|data|data_parallel"
    "|replicate|shard",
    "TP": "tp|etp|tensor|tensor_parallel|model",
    "SP": "sp|sequence",
    "CP": "cp|context",
    "PP": "pp|pipe|pipeline",
    "EP": "ep|expert",
}
"""Names of mesh dimensions in PyTorch's tutorials, torchtitan, Accelerate and Lightning."""

KNOWN: tuple[tuple[re.Pattern[str], str], ...] = (
    # additional host groups for checkpoints and flags
    (re.compile("_GLOO$"), "EXACT"),
    *((re.compile(f"^mesh_({names})$"), dimension) for dimension, names in _MESH.items()),
    (re.compile("^fsdp_reduce_scatter$"), "DP"),
    # Megatron-Core
    (re.compile("^((EXPERT_)?TENSOR_MODEL_PARALLEL_GROUP|EXPERT_TENSOR_PARALLEL_GROUP|TP_GROUP)$"), "TP"),
    (re.compile("^PIPELINE_MODEL_PARALLEL_GROUP"), "PP"),
    (re.compile("^(HIERARCHICAL_)?CONTEXT_PARALLEL_GROUP"), "CP"),
    (re.compile("^EXPERT_MODEL_PARALLEL_GROUP$"), "EP"),
    (re.compile("(?<!_AND_)DATA_PARALLEL_GROUP"), "DP"),  # TENSOR_AND_DATA_PARALLEL_GROUP is used for norms and flags
)
"""Patterns of the frameworks' group descriptions, with their dimensions. The first match applies."""


def dimension_of(description: str, ranks: Sequence[int], world: int, groups: Groups) -> str | None:
    """Return the dimension of a group, or None if it is unknown.

    Parameters
    ----------
    description
        Group description.
    ranks
        Global ranks of the group.
    world
        Number of ranks in the program.
    groups
        The user's groups file.
    """
    for pattern in groups.groups:
        if pattern.match is not None and re.search(pattern.match, description):
            return pattern.dimension
    dimensions = {_of_framework(name) for name in _names(description)} - {None}
    if dimensions:
        return dimensions.pop() if len(dimensions) == 1 else None
    if not is_undescribed(description):
        return None
    if groups.layout:
        return _of_axes(_axes_of_group(ranks, world, groups.layout), groups)
    # all ranks of a program without a mesh, such as a DDP program
    return "DP" if description == "default_pg" and len(ranks) == world else None


def is_undescribed(description: str) -> bool:
    """Return whether a description does not indicate the group's purpose."""
    return description in UNDESCRIBED or all(
        _UNNAMED.fullmatch(name.removeprefix("mesh_")) for name in _names(description)
    )


def dimension_of_message(ranks: tuple[int, int], world: int, layout: Sequence[Axis]) -> str | None:
    """Return the dimension along which two ranks of a layout are neighbors.

    Return None unless exactly one dimension matches.

    Parameters
    ----------
    ranks
        The two global ranks.
    """
    first, second = (_coordinates(rank, layout) for rank in ranks)
    if math.prod(axis.size for axis in layout) != world:
        return None
    apart = [axis.dimension for axis, here, there in zip(layout, first, second, strict=True) if here != there]
    return apart[0] if len(apart) == 1 else None


def _names(description: str) -> list[str]:
    """Return the names of a group, which may come from several meshes."""
    names = description.removeprefix("mesh_").split(" or ") if description.startswith("mesh_") else []
    return [f"mesh_{name}" for name in names] or [description]


@cache
def _of_framework(name: str) -> str | None:
    return next((dimension for pattern, dimension in KNOWN if pattern.search(name)), None)


def remedy(description: str) -> str:
    """Return a groups-file line that assigns a dimension to a group."""
    if is_undescribed(description):
        return "layout: [{dimension: DP, size: ...}, ...]"
    return f"groups: [{{match: '^{re.escape(description)}$', dimension: DP}}]"


def _coordinates(rank: int, layout: Sequence[Axis]) -> list[int]:
    coordinates = []
    for axis in reversed(layout):
        rank, place = divmod(rank, axis.size)
        coordinates.append(place)
    return coordinates[::-1]


def _axes_of_group(ranks: Sequence[int], world: int, layout: Sequence[Axis]) -> list[Axis]:
    """Return the layout axes that a group spans completely, or an empty list."""
    if math.prod(axis.size for axis in layout) != world:
        return []
    places = list(zip(*(_coordinates(rank, layout) for rank in ranks), strict=True))
    spanned = [axis for axis, place in zip(layout, places, strict=True) if len(set(place)) > 1]
    complete = all(len(set(place)) in (1, axis.size) for axis, place in zip(layout, places, strict=True))
    return spanned if complete and len(set(ranks)) == math.prod(axis.size for axis in spanned) else []


def _of_axes(axes: Sequence[Axis], groups: Groups) -> str | None:
    """Return the dimension of a group that spans these axes, or None if it is unknown.

    The dimension comes from a matching user pattern or from the axes' common dimension. DP and CP together count as DP
    (gradients).
    """
    spanned = sorted(axis.dimension for axis in axes)
    for pattern in groups.groups:
        if pattern.axes is not None and sorted(pattern.axes) == spanned:
            return pattern.dimension
    if len(set(spanned)) == 1:
        return spanned[0]
    return "DP" if set(spanned) == {"CP", "DP"} else None
