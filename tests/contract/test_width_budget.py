"""Tests of budgets of mixed widths."""

import numpy as np
import pytest

from hpcbench.codecs.registry import get_codec
from hpcbench.contract.mixed_widths import SUPER_GROUP, explain_wrong_budget, make_budget, name_codecs

MANY = 256
"""Number of super-groups in a message, whose size is a multiple of four bytes."""
CODECS = ("int4:16/256", "int4:32/256", "int4:16/256:nonuniform", "int4:32/256:nonuniform:stochastic")


def list_sizes(codec):
    """Return the bytes of a super-group at 2, at 4 and at 8 bits per value."""
    dtype = np.dtype(np.float32)
    return [get_codec(name).wire_bytes(MANY * SUPER_GROUP, dtype) / MANY for name in name_codecs(codec)]


@pytest.mark.parametrize("codec", CODECS)
def test_sizes_are_those_of_the_codecs(codec):
    budget = make_budget(SUPER_GROUP, codec, 8, scattered=False)
    narrow, middle, wide = list_sizes(codec)
    assert (budget.middle_extra, budget.wide_extra) == (middle - narrow, wide - narrow)
    assert budget.spare == 255 - narrow


def test_other_codecs_keep_the_rounding_of_the_rule():
    assert name_codecs("int4:16/256:correlated") == (
        "int2:16/256:correlated",
        "int4:16/256:correlated",
        "int8:256:correlated",
    )
    assert name_codecs("int4:32/256:nonuniform:stochastic") == (
        "int2:32/256:stochastic",
        "int4:32/256:nonuniform:stochastic",
        "int8:256:stochastic",
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("scattered", [False, True])
def test_counts_fill_the_budget_and_never_exceed_it(codec, scattered):
    sizes = list_sizes(codec)
    for bits in (2.8, 3.5, 4.0, 4.5625, 5.0, 6.5, 8.1):
        assert explain_wrong_budget(codec, bits) is None
        for elements in (256, 300, 25600, 25700):
            budget = make_budget(elements, codec, bits, scattered=scattered)
            for wide in range(min(budget.groups, budget.spare // budget.wide_extra) + 1):
                counts = budget.fill(wide)
                assert min(counts) >= 0 and counts.groups == elements // 256 and sum(counts.elements) == elements
                nbytes = sum(n * size for n, size in zip(counts[:3], sizes, strict=True))
                nbytes += counts.groups * (2 if scattered else 1)
                left = counts.groups * bits * 32 - nbytes
                assert left >= 0 and (left < budget.middle_extra + 1 or not counts.narrow)
            assert budget.guess() in [budget.fill(wide) for wide in range(budget.groups + 1)]


def test_pieces_without_a_complete_super_group_have_no_budget():
    assert make_budget(255, "int4:16/256", 5.0, scattered=False) is None


def test_typical_counts_at_the_size_of_the_codec():
    assert make_budget(25600, "int4:16/256", 4.5625, scattered=False).guess()[:3] == (23, 65, 12)
