"""Token embedding and learned position embedding on a tensor grid.

A token look-up is the product of a one-hot row with the table and is computed like other products. The one-hot rows are
never sent, because every rank has the tokens. Shapes: b samples, s positions, h features, V vocabulary entries.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hpcbench.contract.grid import Product
from hpcbench.parallel.buffers import wire_dtype
from hpcbench.parallel.grid.lines import Lines, laid
from hpcbench.parallel.grid.moves import gather, scatter
from hpcbench.parallel.grid.summa import Operand, stream
from hpcbench.parallel.vocabulary import locate


class GridVocabulary(nn.Module):
    """Token embedding whose table, [V, h], is divided among the ranks.

    Each rank receives all tokens, [b, s]. The result is cut like the residual stream.
    """

    def __init__(self, plain: nn.Embedding, word: str, lines: Lines) -> None:
        super().__init__()
        self._lines, self._product = lines, lines.grid.products[word]
        self.weight = lines.part(plain.weight, lines.grid.cuts(word, "weight"))

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up the vectors of tokens. The result is cut like the residual stream."""
        tokens_here = self._lines.select_rows(tokens, self._product.x["M"])
        look_up = _StreamedLookUp if self._product.streamed else _GatheredLookUp
        x: Tensor = look_up.apply(tokens_here, self.weight, self._product, self._lines)  # type: ignore[no-untyped-call]
        return laid(x, self._lines.grid.stream)


class GridPositions(nn.Module):
    """Position embedding whose table, [s, h], is cut by the same axes as the features."""

    def __init__(self, plain: nn.Embedding, word: str, lines: Lines) -> None:
        super().__init__()
        self.weight = lines.part(plain.weight, lines.grid.cuts(word, "weight"))

    def forward(self, positions: Tensor) -> Tensor:
        """Look up this rank's features of the position vectors."""
        return F.embedding(positions, self.weight)


def rows_of(tokens: Tensor, table: Tensor, piece: int) -> Tensor:
    """Look up the rows of tokens: [b, s] -> [b, s, h]. Rows of other pieces are set to zero."""
    place, present = locate(tokens, slice(piece * len(table), (piece + 1) * len(table)))
    return F.embedding(place, table).masked_fill(~present.unsqueeze(-1), 0)


def added_up(gradient: Tensor, tokens: Tensor, rows: int, piece: int) -> Tensor:
    """Accumulate the gradient of looked-up rows, [b, s, h], into the gradient of a table piece, [rows, h]."""
    place, present = locate(tokens, slice(piece * rows, (piece + 1) * rows))
    total = gradient.new_zeros((rows, gradient.shape[-1]), dtype=wire_dtype(gradient.dtype))
    values = gradient.masked_fill(~present.unsqueeze(-1), 0).to(total.dtype)
    return total.index_add_(0, place.flatten(), values.flatten(0, 1)).to(gradient.dtype)


class _GatheredLookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, product: Product, lines: Lines) -> Tensor:
        table = gather(weight, lines.there(product.forward.right)).wait()
        ctx.product, ctx.lines, ctx.rows, ctx.piece = product, lines, len(table), lines.index(product.at["K"])
        ctx.save_for_backward(tokens)
        return scatter(rows_of(tokens, table, ctx.piece), lines.there(product.forward.result)).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None, None]:
        (tokens,) = ctx.saved_tensors
        how = ctx.product.weight_gradient
        joined = gather(gradients[0].contiguous(), ctx.lines.back(how.left)).wait()
        table = added_up(joined, tokens, ctx.rows, ctx.piece)
        return None, scatter(table, ctx.lines.back(how.result)).wait(), None, None


class _StreamedLookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, product: Product, lines: Lines) -> Tensor:
        how = product.forward
        ctx.product, ctx.lines, ctx.rows = product, lines, len(weight)
        ctx.save_for_backward(tokens)
        return stream(how, Operand(tokens), Operand(weight, lines.there(how.right)), None, rows_of)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None, None]:
        (tokens,) = ctx.saved_tensors
        how, rows = ctx.product.weight_gradient, ctx.rows
        left, right = Operand(gradients[0].contiguous()), Operand(tokens)
        into = ctx.lines.back(how.result)
        return (
            None,
            stream(how, left, right, into, lambda dy, tokens_here, s: added_up(dy, tokens_here, rows, s)),
            None,
            None,
        )
