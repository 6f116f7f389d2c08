"""Tests of zero selection, mask formats and packed values, compared with simple computations on one rank."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.comm.feedback import Feedback
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.training import Model
from hpcbench.features.prune.engine import formats
from hpcbench.features.prune.engine.formats import MaskError
from hpcbench.features.prune.engine.lengths import compute_piece_length, compute_whole_length, count_mask_bytes
from hpcbench.features.prune.engine.select import TargetSlice, select_largest, select_largest_units, select_two_of_four
from hpcbench.features.prune.engine.targets import Target, count_place_bytes, count_units, list_targets
from hpcbench.features.prune.settings import Prune
from hpcbench.parallel.packing import Packing, clear

RNG = np.random.default_rng(5)


def reduce_alone(values):
    """Reduce in place over one rank, which is a no-op."""


def cut_matrix(target, values, rows, columns, runs):
    """Cut a matrix into the parts that ranks hold, which are blocks cut into runs of elements."""
    parts, boxes = [], []
    for row in cut_evenly(values.shape[0], rows):
        for column in cut_evenly(values.shape[1], columns):
            flat = np.ascontiguousarray(values[row, column]).reshape(-1)
            for run in cut_evenly(flat.size, runs):
                parts.append(TargetSlice(target, (row, column), run.start, flat[run]))
                boxes.append((row, column, run))
    return parts, boxes


def join_masks(shape, boxes, masks):
    joined = np.zeros(shape, bool)
    for (row, column, run), mask in zip(boxes, masks, strict=True):
        block = np.zeros(joined[row, column].size, bool)
        block[run] = mask
        joined[row, column] |= block.reshape(joined[row, column].shape)
    return joined


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("grid", [(1, 1, 1), (2, 1, 3), (1, 4, 2), (3, 2, 5)])
@pytest.mark.parametrize("zeros", [0, 1, 37, 383, 384])
def test_the_smallest_weights_become_zero_and_of_equal_ones_the_last(dtype, grid, zeros):
    shape = (16, 24)
    values = RNG.choice([0.0, -0.0, 1e-40, 0.25, -0.25, 1.0, 3.5], shape).astype(dtype)  # many ties
    target = Target("a", shape, "a")
    other = Target("b", (300, 3), "b")
    parts, boxes = cut_matrix(target, values, *grid)
    parts.append(TargetSlice(other, (slice(0, 300), slice(0, 3)), 0, np.ones(900, dtype)))
    *masks, second = select_largest(
        parts, [target, other], [zeros, 5], width=values.itemsize, counts=True, total=reduce_alone
    )
    order = np.lexsort((-np.arange(values.size), np.abs(values).reshape(-1)))
    expected = np.ones(values.size, bool)
    expected[order[:zeros]] = False
    assert np.array_equal(join_masks(shape, boxes, masks).reshape(-1), expected)
    assert np.flatnonzero(~second).tolist() == [895, 896, 897, 898, 899]


@pytest.mark.parametrize("pattern", ["rows", "heads"])
def test_a_unit_becomes_zero_with_its_rows_biases_and_columns(pattern):
    model = Model(layers=2, hidden=16, heads=4)
    targets = list_targets(model, pattern)
    count = count_units(model, pattern)
    assert count == (64 if pattern == "rows" else 4)
    weights_of = {target.name: RNG.standard_normal(target.shape) for target in targets}
    sizes = {family: np.zeros(count) for family in dict.fromkeys(target.family for target in targets)}
    for target in targets:
        others = tuple(dim for dim in range(len(target.shape)) if dim != target.dim)
        by_index = np.abs(weights_of[target.name]).sum(axis=others) if others else np.abs(weights_of[target.name])
        sizes[target.family] += by_index.reshape(count, -1).sum(axis=1)
    parts = [TargetSlice(t, tuple(slice(0, n) for n in t.shape), 0, weights_of[t.name].reshape(-1)) for t in targets]
    weights = sum(math.prod(t.shape) for t in targets) // (2 * count)
    zeros = count // 4
    masks = select_largest_units(
        parts,
        list(sizes),
        units=count,
        zeros=zeros,
        weights=weights,
        counts=True,
        total=reduce_alone,
        largest=reduce_alone,
    )
    for part, mask in zip(parts, masks, strict=True):
        zero_units = np.argsort(sizes[part.target.family])[:zeros]
        assert np.array_equal(~mask, np.isin(part.list_units(), zero_units))
    bias = next(t for t in targets if t.name.endswith("bias"))
    assert (~masks[targets.index(bias)]).sum() == zeros * bias.span


def test_the_first_of_equal_units_are_kept():
    target = Target("up", (6, 4), "up", 0)
    parts = [TargetSlice(target, (slice(0, 6), slice(0, 4)), 0, np.full(24, 0.1, np.float32))]
    (mask,) = select_largest_units(
        parts, ["up"], units=6, zeros=2, weights=4, counts=True, total=reduce_alone, largest=reduce_alone
    )
    assert mask.reshape(6, 4).all(axis=1).tolist() == [True] * 4 + [False] * 2


def test_two_of_four_by_hand():
    values = np.array([3, -1, 2, 0, 1, 1, 1, 1, 0, 0, -5, 4], np.float32)
    part = TargetSlice(Target("w", (1, 12), "w"), (slice(0, 1), slice(0, 12)), 0, values)
    assert select_two_of_four(part).astype(int).tolist() == [1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    with pytest.raises(ValueError, match="is split across two ranks"):
        select_two_of_four(TargetSlice(part.target, part.held, 2, values[2:10]))


def test_places_use_the_fewest_bytes():
    sizes = {256: 1, 257: 2, 65536: 2, 65537: 3}
    assert {n: count_place_bytes([Target("w", (n,), "w")]) for n in sizes} == sizes


# ---------------------------------------------------------------- packed masks


@given(st.integers(0, 200), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_a_bitmap_round_trips(n, seed):
    rng = np.random.default_rng(seed)
    free = rng.random(n) < 0.7
    mask = (rng.random(n) < 0.5) | ~free
    sent = formats.pack_bitmap(mask)
    assert sent.nbytes == count_mask_bytes(n)
    assert np.array_equal(formats.unpack_bitmap(sent, free), mask)


@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_places_round_trip(groups, seed):
    rng = np.random.default_rng(seed)
    sparse = rng.random(groups) < 0.7
    mask = np.ones((groups, 4), bool)
    for group in np.flatnonzero(sparse):
        mask[group, rng.choice(4, 2, replace=False)] = False
    sent = formats.pack_places(mask.reshape(-1), sparse.repeat(4))
    assert sent.nbytes == count_mask_bytes(4 * groups)
    assert np.array_equal(formats.unpack_places(sent, sparse.repeat(4)), mask.reshape(-1))


def test_places_by_hand():
    mask = np.array([1, 0, 1, 0, 0, 1, 0, 1], bool)
    assert formats.pack_places(mask, np.ones(8, bool)).tolist() == [0b1101_1000]


def test_an_invalid_mask_is_refused():
    free = np.array([True] * 4 + [False] * 4)
    valid_places = formats.pack_places(np.array([1, 1, 0, 0, 1, 1, 1, 1], bool), free)
    assert formats.unpack_places(valid_places, free).sum() == 6
    for code, message in (
        (0b0101, "positions 0101 of the remaining values in group 0"),
        (1, "0001"),
        (0b0100_0100, "group 1"),
    ):
        with pytest.raises(MaskError, match=message):
            formats.unpack_places(np.array([code], np.uint8), free)
    with pytest.raises(MaskError, match="value 6 is masked, but cannot be zero"):
        formats.unpack_bitmap(np.array([0b1011_1111], np.uint8), free)
    with pytest.raises(MaskError, match="does not have exactly two nonzero values"):
        formats.pack_places(np.ones(8, bool), free)
    with pytest.raises(MaskError, match="only some values of a group of four can be zero"):
        formats.pack_places(np.ones(4, bool), np.array([True, False, False, False]))


# ---------------------------------------------------------------- packed values


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_packed_values_round_trip_and_zeros_are_not_sent(pieces):
    n, own_piece = 256, pieces - 1
    mask = torch.from_numpy(RNG.random(n) < 0.4)
    cuts = cut_evenly(n, pieces)
    counts = [int(mask[cut].sum()) for cut in cuts]
    length = compute_piece_length(counts) if pieces > 1 else compute_whole_length(counts[0], 4)
    packing = Packing(mask, cuts, length=length, own=own_piece)
    assert packing.elements == length * pieces and packing.counts == counts
    assert max(counts) <= length < max(counts) + (16 if pieces > 1 else 64)
    values = torch.from_numpy(RNG.standard_normal(n))
    packed = packing.pack(values)
    assert int((packed != 0).sum()) == sum(counts)
    expected = torch.where(mask, values, 0.0)
    assert torch.equal(packing.unpack(packed), expected)
    packed_piece = packing.pack_own(values[cuts[own_piece]])
    assert torch.equal(packed_piece, packed[own_piece * length : (own_piece + 1) * length])
    assert torch.equal(packing.unpack_own(packed_piece), expected[cuts[own_piece]])
    residuals = Feedback(n)
    residuals.sent[:], residuals.summed[:] = RNG.standard_normal(n), RNG.standard_normal(n)
    sent = np.where(mask.numpy(), residuals.sent, 0)
    packed_residuals = packing.pack_residuals(residuals, values)
    assert packed_residuals.sent.size == packing.elements
    packing.unpack_residuals(packed_residuals, residuals)
    assert np.array_equal(residuals.sent, sent)


def test_masked_nan_and_infinity_are_cleared():
    values = torch.tensor([math.nan, math.inf, 1.0])
    clear((values,), torch.tensor([False, False, True]))
    assert values.tolist() == [0.0, 0.0, 1.0]


# ---------------------------------------------------------------- schedule


def test_sparsity_grows_along_a_cubic_curve_in_exact_fractions():
    growing = Prune(pattern="unstructured", sparsity=0.8, begin=10, end=50, every=10)
    assert [updates for updates in range(1, 100) if growing.is_due(updates)] == [20, 30, 40, 50]
    fractions = [growing.compute_fraction(updates) for updates in (9, 10, 19, 20, 30, 40, 49, 50, 99)]
    cubic = [Fraction(4, 5) * (1 - Fraction(k, 4) ** 3) for k in (3, 2, 1)]
    assert fractions == [0, 0, 0, *cubic, cubic[-1], Fraction(4, 5), Fraction(4, 5)]
    assert growing.count_zeros(1000, 20) == 463  # 462.5
    uneven = growing.changed(every=15)
    assert [updates for updates in range(1, 100) if uneven.is_due(updates)] == [25, 40, 50]


def test_without_an_end_all_zeros_appear_at_once():
    prune = Prune(pattern="2:4", begin=7)
    assert [updates for updates in range(1, 100) if prune.is_due(updates)] == [7]
    assert (prune.compute_fraction(6), prune.compute_fraction(7)) == (0, Fraction(1, 2))
