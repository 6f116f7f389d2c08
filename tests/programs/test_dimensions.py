"""The dimension of a group: what frameworks call their groups, what a user says, and what a layout implies."""

import pytest

from hpcbench.contract.interpose import Axis, GroupPattern, Groups
from hpcbench.torch.dimensions import dimension_of, remedy

NOTHING = Groups()


@pytest.mark.parametrize(
    ("description", "dimension"),
    [
        ("mesh_dp", "DP"),
        ("mesh_dp_shard_cp", "DP"),
        ("mesh_fsdp", "DP"),
        ("mesh_data_parallel", "DP"),
        ("mesh_tp", "TP"),
        ("mesh_tensor_parallel", "TP"),
        ("mesh_pp", "PP"),
        ("mesh_cp", "CP"),
        ("mesh_ep", "EP"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "DP"),
        ("EXPERT_DATA_PARALLEL_GROUP", "DP"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "TP"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "TP"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "PP"),
        ("CONTEXT_PARALLEL_GROUP", "CP"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "EP"),
        ("DATA_PARALLEL_GROUP_GLOO", "EXACT"),
        ("mesh_dp or tp", None),  # two meshes that span all ranks, by different names
        ("mesh_several dimensions", None),
        ("mesh_dim_0", None),
        ("something else", None),
    ],
)
def test_descriptions_of_frameworks(description: str, dimension: str | None) -> None:
    assert dimension_of(description, range(4), 4, NOTHING) == dimension


def test_all_ranks_of_a_program_without_a_mesh_are_data_parallel_and_parts_of_them_are_unknown() -> None:
    assert dimension_of("default_pg", range(4), 4, NOTHING) == "DP"
    assert dimension_of("undefined", range(4), 4, NOTHING) is None
    assert dimension_of("undefined", [0, 1], 4, NOTHING) is None


def test_the_users_patterns_go_before_everything() -> None:
    groups = Groups(
        groups=[GroupPattern(match="^default", dimension="EXACT"), GroupPattern(match="mesh_", dimension="PP")],
        layout=[Axis(dimension="DP", size=4)],
    )
    assert dimension_of("default_pg", range(4), 4, groups) == "EXACT"
    assert dimension_of("mesh_dp", range(4), 4, groups) == "PP"


@pytest.mark.parametrize(
    ("ranks", "dimension"),
    [
        ([0, 1], "TP"),
        ([6, 7], "TP"),
        ([0, 2], "DP"),
        ([5, 7], "DP"),
        ([1, 5], "PP"),
        ([0, 3], None),
        ([1, 2], None),  # neighbours, but of two groups
        ([0, 1, 2, 3], None),
        (list(range(8)), None),
    ],
)
def test_a_declared_layout_tells_groups_without_a_description(ranks: list[int], dimension: str | None) -> None:
    layout = [Axis(dimension="PP", size=2), Axis(dimension="DP", size=2), Axis(dimension="TP", size=2)]
    assert dimension_of("undefined", ranks, 8, Groups(layout=layout)) == dimension


def test_a_layout_of_another_size_tells_nothing() -> None:
    layout = [Axis(dimension="DP", size=2), Axis(dimension="TP", size=2)]
    assert dimension_of("undefined", [0, 1], 8, Groups(layout=layout)) is None


def test_the_remedy_gives_the_dimension() -> None:
    assert "match: '^my\\-group$'" in remedy("my-group")
    assert dimension_of("my-group", [0], 1, Groups(groups=[GroupPattern(match="^my\\-group$", dimension="DP")])) == "DP"
    assert remedy("undefined").startswith("layout:")
