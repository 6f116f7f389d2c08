"""A product whose operands are gathered and whose summands are scattered: 3d (arXiv 2105.14450, section 3.2).

Gathered operands are kept for the backward pass, which therefore sends as many bytes as the forward pass. With
recomputation they are gathered once more, and kept only during a layer's own backward pass.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hpcbench.contract.grid import Product
from hpcbench.parallel.grid.lines import Lines
from hpcbench.parallel.grid.moves import Coming, gather, scatter


class GatheredProduct(torch.autograd.Function):
    """Y[M, N] = X[M, K] W[N, K]^T; x is [b, s, K], w [N, K], y [b, s, N]. The weight may already be under way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, coming: Coming, product: Product, lines: Lines) -> Tensor:
        """Gather the operands, multiply, and scatter the sums."""
        rows = gather(x, lines.there(product.forward.left))
        weight = coming.wait()
        x = rows.wait()
        ctx.product, ctx.lines = product, lines
        ctx.save_for_backward(x, weight)
        return scatter(F.linear(x, weight), lines.there(product.forward.result)).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """Compute the gradients of x and w. The sum of w's is under way while x's is computed."""
        x, weight = ctx.saved_tensors
        product, lines = ctx.product, ctx.lines
        dy = gather(gradients[0].contiguous(), lines.back(product.input_gradient.left)).wait()
        dw = dy.flatten(0, 1).T @ x.flatten(0, 1)
        summed = scatter(dw, lines.back(product.weight_gradient.result))  # under way while dx is computed
        dx = scatter(dy @ weight, lines.back(product.input_gradient.result)).wait()
        return dx, summed.wait(), None, None, None
