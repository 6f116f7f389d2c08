"""SUMMA matrix product with a streamed dim (arXiv 2104.05343, section 3.1), for modes 2d and 2.5d.

Mode 2.5d uses SUMMA on each layer of the grid. The streamed dim is processed piece by piece. Operands with this dim are
broadcast, blocks are multiplied, and a result with this dim is reduced to the rank that owns the piece. With two
buffers, the blocks of the next piece are transferred while the blocks of the current piece are multiplied. Only the
rank's own blocks are kept for the backward pass, which sends the blocks again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hpcbench.contract.grid import Multiplication, Product
from hpcbench.parallel.buffers import wire_dtype
from hpcbench.parallel.grid.lines import GridLine, Lines
from hpcbench.parallel.grid.moves import Coming, broadcast, reduce


class Operand(NamedTuple):
    """A rank's block of an operand, and the line for its broadcast (None for an operand without the streamed dim)."""

    block: Tensor
    line: GridLine | None = None


Compute = Callable[[Tensor, Tensor, int], Tensor]
"""Function that computes a block of the result from two blocks and the index of the piece."""


def stream(how: Multiplication, left: Operand, right: Operand, into: GridLine | None, compute: Compute) -> Tensor:
    """Compute the rank's block of the result.

    Parameters
    ----------
    how
        The kind of multiplication, including the number of pieces.
    left, right
        The operands.
    into
        Line along which results are reduced, or None if the results of all pieces are added locally.
    compute
        Function that multiplies two blocks and returns a new tensor.
    """
    overlap = any(line.overlap for line in (left.line, right.line, into) if line)
    coming = [_piece(left, 0), _piece(right, 0)]
    total = mine = before = None
    for s in range(how.pieces):
        a, b = (block.wait() for block in coming)
        if overlap and s + 1 < how.pieces:
            coming = [_piece(left, s + 1), _piece(right, s + 1)]
        block = compute(a, b, s)
        if into is None:
            total = block.to(wire_dtype(block.dtype)) if total is None else total.add_(block)
        else:
            before, summing = reduce(block, s, into), before
            if s == into.group.rank:
                mine = before
            if summing and summing is not mine:
                summing.wait()
        if not overlap and s + 1 < how.pieces:
            coming = [_piece(left, s + 1), _piece(right, s + 1)]
    if total is not None:
        return total.to(left.block.dtype if left.block.is_floating_point() else right.block.dtype)
    assert mine is not None
    if before is not None and before is not mine:
        before.wait()
    return mine.wait()


def _piece(operand: Operand, s: int) -> Coming:
    return broadcast(operand.block, s, operand.line)


class StreamedProduct(torch.autograd.Function):
    """Matrix product Y = X W^T, where x is [b, s, K], w is [N, K], and y is [b, s, N]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, product: Product, lines: Lines) -> Tensor:
        """Compute the rank's block of the product."""
        ctx.product, ctx.lines = product, lines
        ctx.save_for_backward(x, w)
        how = product.forward
        left, right = Operand(x, lines.there(how.left)), Operand(w, lines.there(how.right))
        return stream(how, left, right, lines.there(how.result), lambda x, w, _: F.linear(x, w))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Compute the rank's gradient blocks of x and w."""
        x, w = ctx.saved_tensors
        product, lines, dy = ctx.product, ctx.lines, gradients[0].contiguous()
        how = product.input_gradient
        left, right = Operand(dy, lines.back(how.left)), Operand(w, lines.there(how.right))
        dx = stream(how, left, right, lines.back(how.result), lambda dy, w, _: dy @ w)
        how = product.weight_gradient
        left, right = Operand(dy, lines.back(how.left)), Operand(x, lines.there(how.right))
        dw = stream(how, left, right, lines.back(how.result), lambda dy, x, _: dy.flatten(0, 1).T @ x.flatten(0, 1))
        return dx, dw, None, None
