"""Closed forms: the parameters on a rank of a tensor grid, and the elements that the rank's layers send."""

import math
from collections import Counter
from collections.abc import Iterator

from hpcbench.contract.grid import Grid
from hpcbench.contract.traffic import Traffic
from hpcbench.contract.training import Model
from hpcbench.predict.grid import (
    GridProduct,
    MatrixMove,
    list_backward_moves,
    list_block_products,
    list_forward_moves,
)


def count_weights(grid: Grid, model: Model, layers: int, *, first: bool, last: bool, seq_len: int) -> int:
    """Return the number of parameters on a rank of a stage with `layers` layers.

    A rank holds 1/P of each matrix, or d/P in 2.5d.
    """
    return sum(_count_each_weight(grid, model, layers, first=first, last=last, seq_len=seq_len))


def _count_each_weight(
    grid: Grid, model: Model, layers: int, *, first: bool, last: bool, seq_len: int
) -> Iterator[int]:
    h = model.hidden

    def count(word: str, attribute: str, *shape: int) -> int:
        cuts = grid.cuts(word, attribute)
        return math.prod(size // grid.count(axes) for size, axes in zip(shape, cuts, strict=True))

    for layer in list_block_products(1, model) * layers:
        yield count(layer.word, "weight", layer.sizes["N"], layer.sizes["K"])
        yield count(layer.word, "bias", layer.sizes["N"]) if model.bias else 0
    yield (2 * layers + last) * (1 + (model.norm == "layernorm")) * count("norm", "weight", h)
    if first:
        yield count("vocabulary", "weight", model.vocab, h)
        yield count("positions", "weight", seq_len, h) if model.positions == "learned" else 0
    if last and not (model.tied and first):
        yield count("head", "weight", model.vocab, h)


def count_forward_elements(grid: Grid, layer: GridProduct) -> Counter[Traffic]:
    """Return the number of elements that a rank sends in the forward pass, by channel."""
    return _count_elements(grid, list_forward_moves(grid, layer))


def count_backward_elements(grid: Grid, layer: GridProduct) -> Counter[Traffic]:
    """Return the number of elements that a rank sends in the backward pass, by channel."""
    return _count_elements(grid, list_backward_moves(grid, layer))


def _count_elements(grid: Grid, sends: list[MatrixMove]) -> Counter[Traffic]:
    sent = Counter[Traffic]()
    for traffic, _, elements in sends:
        sent[traffic] += (grid.sizes[traffic[3]] - 1) * elements
    return sent
