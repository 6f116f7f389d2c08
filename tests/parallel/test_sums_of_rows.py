"""Tests of gradients sent as rows, with cases computed by hand: touched rows, switch density, and bits of sums."""

import numpy as np
import pytest
import torch
from torch import nn

from hpcbench.parallel.sparse.add import Rows, add_rows
from hpcbench.parallel.sparse.measure import DENSITIES, crossing, evenly_spread
from hpcbench.parallel.sparse.switch import Ways, cut_rows
from hpcbench.parallel.sparse.touched import Touched


def bits(x):
    return x.numpy().tobytes()


def whole_sum(tables):
    """Sum in rank order, like an all-reduce."""
    total = tables[0].clone()
    for table in tables[1:]:
        total += table
    return total


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_sums_of_rows_have_the_bits_of_sums_of_tables(ranks):
    """Values have many magnitudes. They include zeros of both signs, infinities, and pairs of opposite values."""
    make = torch.Generator().manual_seed(ranks)
    special = torch.tensor([0.0, -0.0, -0.0, 1e30, -1e30, float("inf"), 1e-40])
    tables, everyones = [], []
    for _ in range(ranks):
        table = torch.randn(40, 8, generator=make) * 10.0 ** torch.randint(-6, 7, (40, 8), generator=make)
        chosen = torch.randint(0, len(special), (40, 8), generator=make)
        table = torch.where(torch.rand(40, 8, generator=make) < 0.5, special[chosen], table)
        table[torch.rand(40, generator=make) < 0.5] = 0.0
        table[7] = -0.0  # on all ranks
        table[8] = -0.0 if not tables else 0.0
        places = table.view(torch.int32).ne(0).any(dim=1).nonzero()[:, 0]
        tables.append(table)
        everyones.append(Rows(places, table[places]))
    summed = torch.zeros(40, 8)
    add_rows(summed, everyones)
    expected = whole_sum(tables)
    same = (summed.view(torch.int32) == expected.view(torch.int32)) | (summed.isnan() & expected.isnan())
    assert same.all()
    assert bits(summed[7]) == bits(torch.full((8,), -0.0)) and bits(summed[8]) == bits(torch.zeros(8))


def test_rows_that_no_rank_has_stay():
    table = torch.zeros(3, 2)
    add_rows(table, [Rows(torch.empty(0, dtype=torch.long), torch.empty(0, 2))] * 2)
    assert bits(table) == bits(torch.zeros(3, 2))


def test_rows_are_those_with_gradients():
    """Rows are excluded if their backward pass runs later or does not run at all."""
    table = nn.Embedding(10, 2)
    touched = Touched(table, slice(2, 8))
    first, second = table(torch.tensor([[1, 3], [7, 3]])), table(torch.tensor([[8, 2]]))
    with torch.no_grad():
        table(torch.tensor([5]))
    second.sum().backward()
    assert touched.take().tolist() == [0]
    assert touched.take().tolist() == []
    first.sum().backward()
    taken = touched.take()
    assert taken.tolist() == [1, 5] and taken.dtype == np.int32
    table(torch.tensor([4])).sum().backward()
    touched.forget()
    assert touched.take().tolist() == []


@pytest.mark.parametrize(
    ("length", "pieces", "width"), [(64, 4, 4), (60, 4, 4), (96, 2, 32), (192, 4, 32), (48, 3, 32)]
)
def test_every_value_is_in_the_rows_of_its_piece(length, pieces, width):
    size = length // pieces
    for piece, rows in enumerate(cut_rows(length, pieces, width)):
        assert [*rows] == sorted({value // width for value in range(piece * size, (piece + 1) * size)})


GATHERED = Ways(replicas=4, rows=100, width=8, length=832, wire_bytes=3328, scattered=False, gathered=True)
TO_OWNERS = Ways(replicas=4, rows=100, width=8, length=832, wire_bytes=3328, scattered=True, gathered=False)
"""In fp32 without a codec, a row takes 32 bytes and its index takes 4."""


def test_bytes_of_both_ways_by_hand():
    counts = [[10], [0], [5], [1]]
    assert GATHERED.whole_bytes == 2 * 3 * 3328
    assert GATHERED.rows_bytes(counts) == 3 * 16 * 36
    assert [GATHERED.leaving(counts, replica) for replica in range(4)] == [30, 0, 15, 3]
    by_owner = [[1, 2, 3, 4], [0, 0, 0, 0], [5, 0, 0, 0], [0, 7, 0, 0]]
    assert TO_OWNERS.whole_bytes == 3 * 3328
    assert TO_OWNERS.rows_bytes(by_owner) == (9 + 0 + 5 + 7) * 36


@pytest.mark.parametrize("ways", [GATHERED, TO_OWNERS])
def test_the_switch_is_at_equal_bytes(ways):
    """Sending rows takes fewer bytes just below the switch density, and more bytes just above it."""
    for factor, shorter in ((0.98, True), (1.02, False)):
        touched = ways.switch_density * factor * ways.rows
        many = [[round(1000 * touched)] if ways.gathered else [round(250 * touched)] * 4] * 4
        thousand = Ways(4, 1000 * ways.rows, 8, 1000 * 832, 1000 * 3328, ways.scattered, ways.gathered)
        assert thousand.switch_density == pytest.approx(ways.switch_density)
        assert thousand.shorter_by_rows(many) is shorter


@pytest.mark.parametrize("ways", [GATHERED, TO_OWNERS])
def test_the_density_is_the_mean_over_the_replicas(ways):
    counts = [[10], [0], [5], [1]] if ways.gathered else [[1, 2, 3, 4], [0] * 4, [5, 0, 0, 0], [0, 1, 0, 0]]
    assert ways.density(counts) == 16 / 400
    assert ways.density([[101]] * 4) == 1.0, "rows on borders count twice"


@pytest.mark.parametrize(
    ("rows", "table", "density"),
    [
        ((1.0, 2.0, 4.0), 3.0, 0.75),
        ((1.0, 2.0, 4.0), 2.0, 0.5),
        ((1.0, 2.0, 4.0), 1.0, 0.0),
        ((1.0, 2.0, 4.0), 4.0, 1.0),
        ((1.0, 2.0, 4.0), 5.0, 1.0),
        ((1.0, 5.0, 2.0), 3.0, 0.375),
        ((1.0, 1.0, 1.0), 1.0, 0.0),
    ],
)
def test_rows_are_faster_up_to_the_crossing_of_the_lines(rows, table, density):
    """Rows are faster up to the density at which their interpolated time reaches the time for the whole table."""
    assert crossing((0.25, 0.5, 1.0), rows, table) == density


@pytest.mark.parametrize("density", DENSITIES)
def test_measured_rows_are_spread_evenly_and_each_is_there_once(density):
    index = evenly_spread(1000, density)
    assert len(index) == round(1000 * density) and index.dtype == np.int32
    gaps = np.diff(index)
    assert gaps.min() >= 1000 // len(index) and gaps.max() <= -(-1000 // len(index)) and index.max() < 1000
    assert evenly_spread(3, 1 / 64).tolist() == [0]


def test_equal_bytes_are_no_gain():
    ways = Ways(replicas=2, rows=9, width=1, length=9, wire_bytes=36, scattered=False, gathered=True)
    assert ways.rows_bytes([[9], [0]]) == ways.whole_bytes == 72
    assert not ways.shorter_by_rows([[9], [0]]) and ways.shorter_by_rows([[8], [0]])


def test_a_codec_shrinks_rows_but_not_their_indices():
    packed = Ways(replicas=4, rows=100, width=8, length=832, wire_bytes=104, scattered=False, gathered=True)
    assert packed.rows_bytes([[10], [0], [0], [0]]) == 30 * 4 + 30 * 1
    assert packed.switch_density < GATHERED.switch_density / 4
