"""Tests of tensor grids: every block is multiplied by the correct block, and every result is sent to its owner."""

import itertools

import numpy as np
import pytest

from hpcbench.contract.grid import AXES, Grid, Product, carries_weights, make_grid

GRIDS = [make_grid("2d", 4), make_grid("2d", 9), make_grid("2.5d", 8, 2), make_grid("2.5d", 12, 3), make_grid("3d", 8)]
GRIDS.append(make_grid("3d", 27))
WORDS = ("column", "row", "head", "vocabulary")


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_ranks_and_coordinates_are_one_to_one(grid):
    seen = {tuple(grid.coordinates(rank).items()) for rank in range(grid.ranks)}
    assert len(seen) == grid.ranks
    assert [grid.index(rank, grid.axes) for rank in range(grid.ranks)] == list(range(grid.ranks))


def test_neighbours_along_the_last_axis_are_neighbouring_ranks():
    grid = make_grid("3d", 8)
    first, second = (grid.coordinates(rank) for rank in (0, 1))
    assert [axis for axis in grid.axes if first[axis] != second[axis]] == ["j"]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_what_the_moves_bring_together_is_the_product(grid, word):
    """One process simulates all ranks with integers, so results must be exactly equal: forward and both gradients."""
    product = grid.products[word]
    size = 2 * max(grid.count(axes) for axes in (*product.x.values(), *product.w.values(), *product.y.values()))
    rng = np.random.default_rng(3)
    x, w, dy = (rng.integers(-9, 9, (size, size)) for _ in range(3))
    dims = {"x": "MK", "w": "KN", "y": "MN"}
    matrices = {"x": x, "w": w, "y": dy}
    for how, left, right, result, expected in (
        (product.forward, "x", "w", "y", x @ w),
        (product.input_gradient, "y", "w", "x", dy @ w.T),
        (product.weight_gradient, "y", "x", "w", x.T @ dy),
    ):
        if word == "vocabulary" and result == "x":
            continue  # token indices have no gradient
        over = (set(dims[left]) & set(dims[right])).pop()
        blocks = np.zeros_like(expected)
        for rank in range(grid.ranks):
            operands = {name: block(grid, product.at, matrices[name], dims[name], rank) for name in (left, right)}
            a = operands[left] if dims[left][1] == over else operands[left].T
            b = operands[right] if dims[right][0] == over else operands[right].T
            summand = a @ b
            if dims[result] != dims[left].replace(over, "") + dims[right].replace(over, ""):
                summand = summand.T
            place(grid, product.at, dims[result], rank, blocks)[...] += summand
        # a streamed dim is whole on every rank of its axes, so the result's blocks are summed over these axes only
        assert np.array_equal(blocks, expected * repeats(grid, product, dims[result], over)), (word, result)
        if how.result:
            assert how.result.axis in product.at[over]
        assert set(how.unsummed) == set(product.at[over]) - ({how.result.axis} if how.result else set())


def block(grid, cuts, matrix, dims, rank):
    return place(grid, cuts, dims, rank, matrix)


def place(grid, cuts, dims, rank, matrix):
    slices = []
    for dim, size in zip(dims, matrix.shape, strict=True):
        length = size // grid.count(cuts[dim])
        index = grid.index(rank, cuts[dim])
        slices.append(slice(index * length, (index + 1) * length))
    return matrix[tuple(slices)]


def repeats(grid: Grid, product: Product, dims: str, over: str) -> int:
    """Count the ranks that compute the same summand."""
    used = {axis for dim in (*dims, over) for axis in product.at[dim]}
    return grid.count(grid.others(tuple(used)))


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_every_rank_holds_an_equal_part_of_everything(grid):
    """No element of activations or weights is stored twice, except 2.5d weights, which each grid layer stores."""
    for word, product in grid.products.items():
        matrices = [product.w, product.y] + ([product.x] if word != "vocabulary" else [])
        for cuts in matrices:
            axes = [axis for cut in cuts.values() for axis in cut]
            assert len(axes) == len(set(axes))
            missing = set(grid.axes) - set(axes)
            assert missing == ({"e"} if grid.mode == "2.5d" and cuts is product.w else set())


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_layers_fit_each_other(grid):
    p, stream, inner = grid.products, grid.stream, grid.inner
    read = {word: tuple(p[word].x.values()) for word in ("column", "row", "head")}
    written = {word: tuple(p[word].y.values()) for word in WORDS}
    assert read == {"column": stream, "row": inner, "head": stream}
    assert written == {"column": inner, "row": stream, "head": inner, "vocabulary": stream}
    assert grid.cuts("head", "weight") == grid.cuts("vocabulary", "weight"), "tied weights are one"


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_weights_and_activations_have_axes_of_their_own(grid):
    for word, product in grid.products.items():
        for how, kinds in (
            (product.forward, "awa"),
            (product.input_gradient, "awa"),
            (product.weight_gradient, "aaw"),
        ):
            if word == "vocabulary" and how is product.input_gradient:
                continue
            for kind, move in zip(kinds, (how.left, how.right, how.result), strict=True):
                if move:
                    assert carries_weights(move.axis) == (kind == "w"), (word, move)
            assert all(map(carries_weights, how.unsummed))


@pytest.mark.parametrize(
    ("mode", "tp", "depth", "remedy"),
    [("2d", 8, 1, "4 or 9"), ("3d", 4, 1, "1 or 8"), ("2.5d", 10, 2, "8 or 18"), ("2.5d", 9, 2, "8 or 18")],
)
def test_ranks_that_are_no_grid_are_told_which_are(mode, tp, depth, remedy):
    with pytest.raises(ValueError, match=remedy):
        make_grid(mode, tp, depth)


def test_a_large_cube_is_found():
    for q in itertools.chain(range(1, 30), (100,)):
        assert make_grid("3d", q**3).sizes == dict.fromkeys(AXES["3d"], q)
