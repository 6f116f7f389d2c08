"""Tests of shard arithmetic."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hpcbench.contract import shards as plan


@given(st.integers(0, 10**7), st.integers(1, 300))
def test_shards_tile_the_buffer_and_differ_by_one_at_most(n, parts):
    pieces = plan.cut_evenly(n, parts)
    assert len(pieces) == parts
    assert pieces[0].start == 0 and pieces[-1].stop == n
    assert all(a.stop == b.start for a, b in itertools.pairwise(pieces))
    lengths = [plan.count_elements(piece) for piece in pieces]
    assert max(lengths) - min(lengths) <= 1


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_volumes_equal_the_closed_forms(nbytes):
    ranks, total = len(nbytes), sum(nbytes)
    sent = [plan.reduce_scatter_bytes(nbytes, rank) for rank in range(ranks)]
    gathered = [plan.all_gather_bytes(nbytes, rank) for rank in range(ranks)]
    reduced = [plan.all_reduce_bytes(nbytes, rank) for rank in range(ranks)]
    assert sum(sent) == sum(gathered) == (ranks - 1) * total
    assert sum(reduced) == 2 * (ranks - 1) * total
