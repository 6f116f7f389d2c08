"""Tests that the bytes and memory of tensor grids match formulas derived by hand from the papers' algorithms."""

import pytest
from grid_weights import count_backward_elements, count_forward_elements, count_weights
from runs import MODELS, TRAIN

from hpcbench.contract.grid import make_grid
from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Model
from hpcbench.predict import grid as grids
from hpcbench.predict import volume
from hpcbench.predict.calls import StepCalls

M, H = 8192, 4096
"""Number of rows and hidden size of the worked example."""


def received(mode, ranks, depth=1, rows=M, hidden=H):
    """Return the number of elements that a rank receives for a block's products in the forward and backward passes."""
    grid = make_grid(mode, ranks, depth)
    total = 0
    for layer in grids.list_block_products(rows, Model(layers=1, hidden=hidden, heads=1)):
        total += sum(count_forward_elements(grid, layer).values())
        total += sum(count_backward_elements(grid, layer).values())
        total += 2 * (depth - 1) * grids.count_held(grid, grid.products[layer.word].w, layer) // depth
    return total


def one_dimension(ranks, rows=M, hidden=H):
    """Return the number of elements that a rank receives in the four all-reduces of 1-D tensor parallelism."""
    return 4 * 2 * (ranks - 1) * rows * hidden // ranks


@pytest.mark.parametrize(
    ("mode", "ranks", "depth", "millions"),
    [
        ("2d", 64, 1, 143),
        ("2.5d", 64, 4, 165),
        ("3d", 64, 1, 69),
        ("2.5d", 8, 2, 289),
        ("3d", 8, 1, 185),
        ("2d", 4, 1, 327),
    ],
)
def test_a_block_of_8192_rows_and_4096_features(mode, ranks, depth, millions):
    assert round(received(mode, ranks, depth) / 1e6) == millions


def test_on_few_ranks_one_dimension_sends_less_and_on_many_more():
    """Compare the elements received.

    On 4 ranks, a 2-D grid receives more than a 1-D grid, but less on 64 ranks. On 8 ranks, a 3-D grid already receives
    less.
    """
    assert [round(one_dimension(ranks) / 1e6) for ranks in (4, 8, 64)] == [201, 235, 264]
    assert received("2d", 4) > one_dimension(4)
    assert received("2d", 16) < received("2d", 4) and received("2d", 64) < one_dimension(64)
    assert received("3d", 8) < one_dimension(8) < received("2.5d", 8, 2)
    assert received("3d", 64) < received("2d", 64) < received("2.5d", 64, 4)


@pytest.mark.parametrize("q", [2, 3, 4])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_closed_forms_of_a_linear_layer(q, depth):
    """The closed forms are 3 (q-1) (MK/d + KN) / q^2 (streamed) and 2 (q-1) (MK + KN + MN) / q^3 (gathered)."""
    m, k, n = 60 * q**3 * depth, 7 * q**2, 5 * q**2
    for mode in ("2d", "2.5d"):
        if (mode == "2d") == (depth > 1):
            continue
        grid = make_grid(mode, depth * q * q, depth)
        layer = grids.GridProduct("column", {"M": m, "K": k, "N": n})
        forward, backward = (sum(f(grid, layer).values()) for f in (count_forward_elements, count_backward_elements))
        assert forward * q * q == (q - 1) * (m * k // depth + k * n)
        assert backward == 2 * forward
    cube = make_grid("3d", q**3)
    for word in ("column", "row", "head"):
        layer = grids.GridProduct(word, {"M": m, "K": k, "N": n})
        forward, backward = (sum(f(cube, layer).values()) for f in (count_forward_elements, count_backward_elements))
        assert forward * q**3 == (q - 1) * (m * k + k * n + m * n)
        assert backward == forward


def test_a_step_by_hand():
    """Count the bytes of one layer (h 4) on 2 x 2 ranks in fp32, for two samples of two tokens (M 4).

    Each rank holds a quarter of every matrix. Axis j carries the pieces of X (total width 7h) in the forward pass and
    for dW, and the sums of dX. Axis i carries the weights (12 h^2) in the forward pass and for dX, and the sums of dW.
    The head sends logits over j, their gradients twice over j, the table twice over i, and the table's gradient. The
    embedding sends its table over i and the gradient. All counts are divided by 4, with 4 bytes per element.
    """
    h, v, m = 4, 256, 4
    model = MODELS["neox"].changed(layers=1, hidden=h, heads=2, vocab=v)
    train = TRAIN.changed(seq_len=2, global_batch=2, micro_batch=2, precision="fp32", zero=0)
    layout = Layout(tp=4, tensor="2d")
    for rank in range(4):
        sent = volume.count_step_bytes(model, train, layout, rank)
        inputs, weights = (h + h + h + 4 * h) * m, 12 * h * h
        assert sent["TP", "FORWARD", "ACT", "j"] == 2 * inputs + m * v
        assert sent["TP", "BACKWARD", "GRAD", "j"] == inputs + 2 * m * v
        assert sent["TP", "FORWARD", "PARAM", "i"] == 2 * weights + 3 * v * h
        assert sent["TP", "BACKWARD", "GRAD", "i"] == weights + 2 * v * h
        assert sent["EXACT", "BACKWARD", "GRAD", "j"] == 3 * 2 * 2 * 4, "three norms: two sums of two rows each"


@pytest.mark.parametrize(
    "layout",
    [Layout(tp=4, tensor="2d"), Layout(tp=8, tensor="2.5d", depth=2), Layout(tp=8, tensor="3d", pp=2)],
    ids=str,
)
def test_weights_on_a_rank_are_those_of_its_buckets(layout):
    model = MODELS["gpt2"].changed(vocab=260)
    for rank in range(layout.ranks):
        stage = layout.coordinates(rank)[0]
        layers = sum(len(part) for part in layout.layers_of(model.layers)[stage :: layout.pp])
        ends = {"first": stage == 0, "last": stage == layout.pp - 1}
        held = count_weights(layout.grid, model, layers, **ends, seq_len=TRAIN.seq_len)
        assert held == sum(bucket.filled * count for bucket, count in StepCalls(model, TRAIN, layout, rank).buckets)
