"""Traffic and memory of tensor parallelism on a grid, in closed form. Pure.

A matrix may be gathered, broadcast piece by piece, reduced piece by piece or scattered over an axis of q ranks. In
each case, a rank sends q - 1 times the number of matrix elements that it holds. With A = M K, B = K N and C = M N for a
layer's input, weight and output, a rank sends and receives these numbers of elements:

====== ================================ ==============================================
mode   forward                          backward
====== ================================ ==============================================
2d     (q-1) (A + B) / q^2              2 (q-1) (A + B) / q^2
2.5d   (q-1) (A/d + B) / q^2            2 (q-1) (A/d + B) / q^2, and once a step
                                        2 (d-1) B / (d q^2) over depth
3d     (q-1) (A + B + C) / q^3          the same: gathered operands are kept
====== ================================ ==============================================

In modes 2d and 2.5d, the product of the head streams the vocabulary, so C replaces A.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from hpcbench.contract.grid import Axes, Cuts, ExtraCut, Grid, Product
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model


class GridProduct(NamedTuple):
    """A matrix product of a model: the name of its layer in the tensor grid, and the sizes of its three dims."""

    word: str
    sizes: Mapping[str, int]


def list_block_products(rows: int, model: Model) -> list[GridProduct]:
    """List the linear layers of a transformer block, for `rows` rows of samples and positions."""
    h, entry = model.hidden, (2 if model.gated else 1) * model.middle
    widths = (("column", h, model.qkv_width), ("row", h, h), ("column", h, entry), ("row", model.middle, h))
    return [GridProduct(word, {"M": rows, "K": k, "N": n}) for word, k, n in widths]


def make_head(rows: int, model: Model) -> GridProduct:
    """Return the product of the logits."""
    return GridProduct("head", {"M": rows, "K": model.hidden, "N": model.vocab})


def make_lookup(rows: int, model: Model) -> GridProduct:
    """Return the product of the embedding: one-hot rows times the embedding table."""
    return GridProduct("vocabulary", {"M": rows, "K": model.vocab, "N": model.hidden})


def count_held(grid: Grid, cuts: Cuts, layer: GridProduct) -> int:
    """Return the number of elements of a layer's matrix on one rank."""
    return math.prod(layer.sizes[dim] // grid.count(axes) for dim, axes in cuts.items())


class MatrixMove(NamedTuple):
    """Transfer of a matrix between the ranks along an axis."""

    traffic: Traffic
    """Channel of the messages."""
    operation: str
    """``broadcast`` and ``reduce`` transfer the ranks' pieces one after another; ``all-gather`` and ``reduce-scatter``
    transfer all pieces at once."""
    held: int
    """Number of matrix elements on each of q ranks. A rank sends q - 1 times this number."""


def list_forward_moves(grid: Grid, layer: GridProduct) -> list[MatrixMove]:
    """List the matrix transfers of a layer's forward pass."""
    product = grid.products[layer.word]
    how = product.forward
    return [
        *_moved(product, ("FORWARD", "ACT"), how.left, count_held(grid, product.x, layer)),
        *_moved(product, ("FORWARD", "PARAM"), how.right, count_held(grid, product.w, layer)),
        *_moved(product, ("FORWARD", "ACT"), how.result, count_held(grid, product.y, layer), summed=True),
    ]


def list_backward_moves(grid: Grid, layer: GridProduct) -> list[MatrixMove]:
    """List the matrix transfers of a layer's backward pass. Values that are sent again use the forward channels."""
    product = grid.products[layer.word]
    x, w, y = (count_held(grid, cuts, layer) for cuts in (product.x, product.w, product.y))
    inputs, weights = product.input_gradient, product.weight_gradient
    there, again, back = ("FORWARD", "PARAM"), ("FORWARD", "ACT"), ("BACKWARD", "GRAD")
    moves: list[MatrixMove] = []
    if layer.word != "vocabulary":  # All ranks have the tokens, which do not have a gradient.
        if product.streamed:
            moves += _moved(product, back, inputs.left, y)
            moves += _moved(product, there, inputs.right, w)
            moves += _moved(product, again, weights.right, x)
        moves += _moved(product, back, inputs.result, x, summed=True)
    moves += _moved(product, back, weights.left, y)
    moves += _moved(product, back, weights.result, w, summed=True)
    return moves


def _moved(
    product: Product, phase_and_kind: tuple[str, str], move: ExtraCut | None, elements: int, *, summed: bool = False
) -> list[MatrixMove]:
    if move is None or product.sizes[move.axis] == 1:
        return []
    streams = product.streamed is not None
    operation = ("reduce" if streams else "reduce-scatter") if summed else ("broadcast" if streams else "all-gather")
    return [MatrixMove(("TP", *phase_and_kind, move.axis), operation, elements)]


class Statistic(NamedTuple):
    """An uncompressed collective over some axes. `elements` is the length of the whole vector."""

    traffic: Traffic
    operation: str
    axes: Axes
    elements: int


def describe_norm_forward(grid: Grid, rows: int, model: Model) -> Statistic:
    """Return the collective of a norm's forward pass.

    For a LayerNorm, means and centered squares are gathered. For an RMSNorm, squares are summed.
    """
    axes, piece = grid.stream.columns, rows // grid.count(grid.stream.rows)
    if model.norm == "rmsnorm":
        return Statistic(("EXACT", "FORWARD", "ACT", "".join(axes)), "all-reduce", axes, piece)
    piece *= 2
    return Statistic(("EXACT", "FORWARD", "ACT", "".join(axes)), "all-gather", axes, grid.count(axes) * piece)


def describe_norm_backward(grid: Grid, rows: int, model: Model) -> Statistic:
    """Return the collective of a norm's backward pass: two sums for a LayerNorm, one for an RMSNorm."""
    axes, piece = grid.stream.columns, (1 + (model.norm == "layernorm")) * rows // grid.count(grid.stream.rows)
    return Statistic(("EXACT", "BACKWARD", "GRAD", "".join(axes)), "all-reduce", axes, piece)


def list_loss_statistics(grid: Grid, rows: int) -> list[Statistic]:
    """List the collectives of the loss: largest logits, sums of exponentials and target logits, and the mean."""
    inner = grid.inner
    piece = rows // grid.count(inner.rows)
    return [
        Statistic(("EXACT", "FORWARD", "ACT", "".join(axes)), "all-reduce", axes, n)
        for axes, n in ((inner.columns, piece), (inner.columns, 2 * piece), (inner.rows, 1))
    ]


def count_kept_elements(grid: Grid, layer: GridProduct) -> int:
    """Return the number of elements that a linear layer keeps for its backward pass.

    SUMMA keeps the rank's input: ``A / q^2``, or ``A / (d q^2)`` in 2.5d. Weights are not counted, because they are in
    memory in any case. In mode 3d, the gathered operands are kept: ``(A + B) / q^2``.
    """
    product = grid.products[layer.word]
    if product.streamed:
        return count_held(grid, product.x, layer)
    dims = {"x": ("M", "K"), "w": ("K", "N")}
    return sum(math.prod(layer.sizes[dim] // grid.count(product.at[dim]) for dim in names) for names in dims.values())


def count_transient_elements(grid: Grid, layer: GridProduct) -> int:
    """Return the peak buffer size of a linear layer's forward pass, in elements.

    Values that the layer keeps or returns are not counted. SUMMA holds two pieces of each broadcast operand: one is
    multiplied while the next arrives. The buffer also holds the accumulated result, or two results if they are reduced
    across ranks: one is reduced while the next accumulates. With gathered operands, the buffer contains the partial
    sums of the output, before each rank keeps ``1/q`` of the sum.
    """
    product, how = grid.products[layer.word], grid.products[layer.word].forward
    x, w, y = (count_held(grid, cuts, layer) for cuts in (product.x, product.w, product.y))
    if not product.streamed:
        return layer.sizes["M"] // grid.count(product.at["M"]) * (layer.sizes["N"] // grid.count(product.at["N"]))
    moving = sum(2 * elements for move, elements in ((how.left, x), (how.right, w)) if move)
    return moving + (2 * y if how.result else y)
