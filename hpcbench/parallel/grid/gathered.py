"""Matrix product with gathered operands and a reduce-scattered result: mode 3d (arXiv 2105.14450, section 3.2).

Gathered operands are kept for the backward pass, which therefore sends the same number of bytes as the forward pass.
With recomputation, operands are gathered again and kept only during the backward pass of their layer.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hpcbench.contract.grid import Product
from hpcbench.parallel.grid.lines import Lines
from hpcbench.parallel.grid.moves import Coming, gather, scatter


class GatheredProduct(torch.autograd.Function):
    """Matrix product Y = X W^T, where x is [b, s, K], w is [N, K], and y is [b, s, N].

    The gathering of the weight may already be in progress.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, coming: Coming, product: Product, lines: Lines) -> Tensor:
        """Gather the operands, multiply them, and reduce-scatter the result."""
        rows = gather(x, lines.there(product.forward.left))
        weight = coming.wait()
        x = rows.wait()
        ctx.product, ctx.lines = product, lines
        ctx.save_for_backward(x, weight)
        return scatter(F.linear(x, weight), lines.there(product.forward.result)).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """Compute the gradients of x and w. The gradient of w is reduced while the gradient of x is computed."""
        x, weight = ctx.saved_tensors
        product, lines = ctx.product, ctx.lines
        dy = gather(gradients[0].contiguous(), lines.back(product.input_gradient.left)).wait()
        dw = dy.flatten(0, 1).T @ x.flatten(0, 1)
        summed = scatter(dw, lines.back(product.weight_gradient.result))  # overlaps with the computation of dx
        dx = scatter(dy @ weight, lines.back(product.input_gradient.result)).wait()
        return dx, summed.wait(), None, None, None
