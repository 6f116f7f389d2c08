"""Tests of group dimensions, derived from the group names of frameworks, the user's settings, and the layout."""

import pytest

from hpcbench.contract.interpose import Axis, GroupPattern, Groups
from hpcbench.programs.dimensions import dimension_of, dimension_of_message, remedy

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
        ("mesh_dp or tp", None),  # two meshes over all ranks, with different names
        ("mesh_several dimensions", None),
        ("mesh_fsdp or world", "DP"),  # torchtitan
        ("mesh_batch or dp_shard_cp or several dimensions", "DP"),
        ("mesh_several dimensions or tp", "TP"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", None),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", None),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "DP"),
        ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", None),
        ("mesh_dim_0", None),
        ("something else", None),
    ],
)
def test_descriptions_of_frameworks(description: str, dimension: str | None) -> None:
    assert dimension_of(description, range(4), 4, NOTHING) == dimension


def test_without_a_mesh_all_ranks_are_data_parallel_and_parts_of_them_are_unknown() -> None:
    assert dimension_of("default_pg", range(4), 4, NOTHING) == "DP"
    assert dimension_of("undefined", range(4), 4, NOTHING) is None
    assert dimension_of("undefined", [0, 1], 4, NOTHING) is None


def test_the_users_patterns_have_priority() -> None:
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
        ([1, 2], None),  # neighbors in two groups
        ([0, 1, 2, 3], None),
        (list(range(8)), None),
    ],
)
def test_a_declared_layout_identifies_groups_without_a_description(ranks: list[int], dimension: str | None) -> None:
    layout = [Axis(dimension="PP", size=2), Axis(dimension="DP", size=2), Axis(dimension="TP", size=2)]
    assert dimension_of("undefined", ranks, 8, Groups(layout=layout)) == dimension


LAYOUT = [Axis(dimension=name, size=2) for name in ("DP", "PP", "CP", "TP")]  # type: ignore[arg-type]
"""Layout of 16 ranks: TP has stride 1 (the TP rank is the rank modulo 2), CP stride 2, PP stride 4 and DP stride 8."""


@pytest.mark.parametrize(
    ("ranks", "dimension"),
    [
        ([0, 2, 8, 10], "DP"),  # DP and CP: gradients
        ([5, 7, 13, 15], "DP"),
        ([0, 1, 8, 9], "EXACT"),  # DP and TP, by the user's setting
        ([0, 1, 2, 3], None),  # CP and TP
        ([0, 2, 8, 11], None),
        ([0, 2, 8], None),
        ([4, 0, 12, 8], None),  # DP and PP, in any order
        (list(range(16)), None),
    ],
)
def test_a_layout_identifies_groups_over_two_axes(ranks: list[int], dimension: str | None) -> None:
    groups = Groups(layout=LAYOUT, groups=[GroupPattern(axes=["TP", "DP"], dimension="EXACT")])
    assert dimension_of("undefined", ranks, 16, groups) == dimension


@pytest.mark.parametrize(
    ("ranks", "dimension"),
    [((0, 4), "PP"), ((12, 8), "PP"), ((0, 1), "TP"), ((3, 11), "DP"), ((0, 5), None), ((3, 3), None)],
)
def test_a_layout_identifies_messages_in_the_group_of_all_ranks(ranks: tuple[int, int], dimension: str | None) -> None:
    assert dimension_of_message(ranks, 16, LAYOUT) == dimension
    assert dimension_of_message(ranks, 32, LAYOUT) is None


def test_a_pattern_selects_by_its_description_or_by_axes() -> None:
    for wrong in ({}, {"match": "a", "axes": ["DP"]}):
        with pytest.raises(ValueError, match="give either match or axes"):
            GroupPattern.model_validate({**wrong, "dimension": "DP"})


def test_a_layout_of_another_size_is_ignored() -> None:
    layout = [Axis(dimension="DP", size=2), Axis(dimension="TP", size=2)]
    assert dimension_of("undefined", [0, 1], 8, Groups(layout=layout)) is None


def test_the_remedy_gives_the_dimension() -> None:
    assert "match: '^my\\-group$'" in remedy("my-group")
    assert dimension_of("my-group", [0], 1, Groups(groups=[GroupPattern(match="^my\\-group$", dimension="DP")])) == "DP"
    assert remedy("undefined").startswith("layout:")
