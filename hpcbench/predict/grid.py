"""What tensor parallelism on a grid sends and holds, in closed form. Pure.

A matrix that is gathered, broadcast piece by piece, reduced piece by piece or scattered over an axis of q ranks costs
each of them q - 1 times what it holds of the matrix, whichever of the four it is. With A = M K, B = K N and C = M N of
a layer's input, weight and output, in elements that a rank sends and receives:

====== ================================ ==============================================
mode   forward                          backward
====== ================================ ==============================================
2d     (q-1) (A + B) / q^2              2 (q-1) (A + B) / q^2
2.5d   (q-1) (A/d + B) / q^2            2 (q-1) (A/d + B) / q^2, and once a step
                                        2 (d-1) B / (d q^2) over depth
3d     (q-1) (A + B + C) / q^3          the same: gathered operands are kept
====== ================================ ==============================================

In 2d and 2.5d the head's product streams the vocabulary, so that C takes the place of A.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hpcbench.contract.grid import Axes, Cuts, ExtraCut, Grid, Product
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model


class GridProduct(NamedTuple):
    """A product of a model: its word, and the sizes of its three dims."""

    word: str
    sizes: Mapping[str, int]


def list_block_products(rows: int, hidden: int) -> list[GridProduct]:
    """The linear layers of a transformer block, for so many rows of samples and positions."""
    widths = {"qkv": ("column", 1, 3), "out": ("row", 1, 1), "up": ("column", 1, 4), "down": ("row", 4, 1)}
    return [GridProduct(word, {"M": rows, "K": k * hidden, "N": n * hidden}) for word, k, n in widths.values()]


def make_head(rows: int, model: Model) -> GridProduct:
    """The layer that makes logits."""
    return GridProduct("head", {"M": rows, "K": model.hidden, "N": model.vocab})


def make_lookup(rows: int, model: Model) -> GridProduct:
    """The embedding: one-hot rows times its table."""
    return GridProduct("vocabulary", {"M": rows, "K": model.vocab, "N": model.hidden})


def count_held(grid: Grid, cuts: Cuts, layer: GridProduct) -> int:
    """Elements of a matrix of a layer that a rank holds."""
    return math.prod(layer.sizes[dim] // grid.count(axes) for dim, axes in cuts.items())


class MatrixMove(NamedTuple):
    """Matrices that ranks along an axis send each other, piece by piece or at once.

    Attributes
    ----------
    traffic
        The channel.
    operation
        ``broadcast`` and ``reduce`` are of each rank's piece in turn, ``all-gather`` and ``reduce-scatter`` of all.
    held
        Elements of the matrix on each rank, which sends q - 1 times as many.
    """

    traffic: Traffic
    operation: str
    held: int


def list_forward_moves(grid: Grid, layer: GridProduct) -> list[MatrixMove]:
    """What the forward pass of a layer sends."""
    product = grid.products[layer.word]
    how = product.forward
    return [
        *_moved(product, ("FORWARD", "ACT"), how.left, count_held(grid, product.x, layer)),
        *_moved(product, ("FORWARD", "PARAM"), how.right, count_held(grid, product.w, layer)),
        *_moved(product, ("FORWARD", "ACT"), how.result, count_held(grid, product.y, layer), summed=True),
    ]


def list_backward_moves(grid: Grid, layer: GridProduct) -> list[MatrixMove]:
    """What the backward pass sends; what is sent again for it goes through the channels of forward."""
    product = grid.products[layer.word]
    x, w, y = (count_held(grid, cuts, layer) for cuts in (product.x, product.w, product.y))
    inputs, weights = product.input_gradient, product.weight_gradient
    there, again, back = ("FORWARD", "PARAM"), ("FORWARD", "ACT"), ("BACKWARD", "GRAD")
    found: list[MatrixMove] = []
    if layer.word != "vocabulary":  # tokens are known to all, and have no gradient
        if product.streamed:
            found += _moved(product, back, inputs.left, y)
            found += _moved(product, there, inputs.right, w)
            found += _moved(product, again, weights.right, x)
        found += _moved(product, back, inputs.result, x, summed=True)
    found += _moved(product, back, weights.left, y)
    found += _moved(product, back, weights.result, w, summed=True)
    return found


def _moved(
    product: Product, words: tuple[str, str], move: ExtraCut | None, elements: int, *, summed: bool = False
) -> list[MatrixMove]:
    if move is None or product.sizes[move.axis] == 1:
        return []
    streams = product.streamed is not None
    operation = ("reduce" if streams else "reduce-scatter") if summed else ("broadcast" if streams else "all-gather")
    return [MatrixMove(("TP", *words, move.axis), operation, elements)]


def count_forward_elements(grid: Grid, layer: GridProduct) -> Counter[Traffic]:
    """What a rank sends in the forward pass, in elements by channel."""
    return _elements(grid, list_forward_moves(grid, layer))


def count_backward_elements(grid: Grid, layer: GridProduct) -> Counter[Traffic]:
    """What a rank sends in the backward pass, in elements by channel."""
    return _elements(grid, list_backward_moves(grid, layer))


def _elements(grid: Grid, sends: list[MatrixMove]) -> Counter[Traffic]:
    sent = Counter[Traffic]()
    for traffic, _, elements in sends:
        sent[traffic] += (grid.sizes[traffic[3]] - 1) * elements
    return sent


class Statistic(NamedTuple):
    """An exact collective over some axes: its elements are those of the whole vector."""

    traffic: Traffic
    operation: str
    axes: Axes
    elements: int


def describe_norm_forward(grid: Grid, rows: int) -> Statistic:
    """Statistics of a LayerNorm: mean and centred squares are gathered."""
    axes, own = grid.stream.columns, 2 * rows // grid.count(grid.stream.rows)
    return Statistic(("EXACT", "FORWARD", "ACT", "".join(axes)), "all-gather", axes, grid.count(axes) * own)


def describe_norm_backward(grid: Grid, rows: int) -> Statistic:
    """Statistics of a LayerNorm's gradient: two sums."""
    axes, own = grid.stream.columns, 2 * rows // grid.count(grid.stream.rows)
    return Statistic(("EXACT", "BACKWARD", "GRAD", "".join(axes)), "all-reduce", axes, own)


def list_loss_statistics(grid: Grid, rows: int) -> list[Statistic]:
    """Cross-entropy: the largest logits; sums of exponentials with target logits; the mean over all rows."""
    inner = grid.inner
    own = rows // grid.count(inner.rows)
    return [
        Statistic(("EXACT", "FORWARD", "ACT", "".join(axes)), "all-reduce", axes, n)
        for axes, n in ((inner.columns, own), (inner.columns, 2 * own), (inner.rows, 1))
    ]


def count_weights(grid: Grid, model: Model, layers: int, *, first: bool, last: bool, seq_len: int) -> int:
    """Parameters on a rank of a stage with so many layers: 1/P of all that is a matrix, but in 2.5d d/P of it."""
    return sum(_weights(grid, model, layers, first=first, last=last, seq_len=seq_len))


def _weights(grid: Grid, model: Model, layers: int, *, first: bool, last: bool, seq_len: int) -> Iterator[int]:
    h = model.hidden

    def part(word: str, attribute: str, *shape: int) -> int:
        cuts = grid.cuts(word, attribute)
        return math.prod(size // grid.count(axes) for size, axes in zip(shape, cuts, strict=True))

    for layer in list_block_products(1, h) * layers:
        yield part(layer.word, "weight", layer.sizes["N"], layer.sizes["K"])
        yield part(layer.word, "bias", layer.sizes["N"])
    yield (2 * layers + last) * 2 * part("norm", "weight", h)
    if first:
        yield part("vocabulary", "weight", model.vocab, h)
        yield part("positions", "weight", seq_len, h) if model.positions == "learned" else 0
    if last and not (model.tied and first):
        yield part("head", "weight", model.vocab, h)


def count_kept_elements(grid: Grid, layer: GridProduct) -> int:
    """Elements that a linear layer keeps from its forward to its backward pass.

    SUMMA keeps what the rank holds, ``A / q^2`` (of 2.5d ``A / (d q^2)``), its weight being there anyway. Gathered
    operands are kept as they are multiplied, ``(A + B) / q^2`` in 3d.
    """
    product = grid.products[layer.word]
    if product.streamed:
        return count_held(grid, product.x, layer)
    dims = {"x": ("M", "K"), "w": ("K", "N")}
    return sum(math.prod(layer.sizes[dim] // grid.count(product.at[dim]) for dim in names) for names in dims.values())


def count_transient_elements(grid: Grid, layer: GridProduct) -> int:
    """Elements of the buffers of a linear layer's forward pass beside what it keeps and returns, at their most.

    SUMMA: two pieces of each operand that is broadcast, the one that is multiplied and the one that comes, and what the
    pieces' results are added up in, or two of them while they are reduced. Gathered: the summands of the output, of
    which a ``1/q`` is left.
    """
    product, how = grid.products[layer.word], grid.products[layer.word].forward
    x, w, y = (count_held(grid, cuts, layer) for cuts in (product.x, product.w, product.y))
    if not product.streamed:
        return layer.sizes["M"] // grid.count(product.at["M"]) * (layer.sizes["N"] // grid.count(product.at["N"]))
    moving = sum(2 * elements for move, elements in ((how.left, x), (how.right, w)) if move)
    return moving + (2 * y if how.result else y)
