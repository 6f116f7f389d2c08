"""LayerNorm and RMSNorm of features that are divided along an axis of the grid.

Statistics are merged over the axis without compression.

Each rank computes the mean of its own features and the sum of squared deviations from this mean. The method of Chan,
Golub and LeVeque (1983) merges these statistics. The method avoids the cancellation that occurs when the squared mean
is subtracted from the mean square. An RMSNorm needs only the sum of squares.
"""

from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.contract.traffic import Phase
from hpcbench.parallel.buffers import wire_dtype
from hpcbench.parallel.grid.lines import GridLine, Lines, check, laid
from hpcbench.parallel.grid.moves import gather
from hpcbench.parallel.regions import all_reduce


class GridNorm(nn.Module):
    """Normalization layer for the residual stream, [b, s, h]. Weight and bias, [h], are cut like the features."""

    def __init__(self, plain: nn.LayerNorm | nn.RMSNorm, word: str, lines: Lines) -> None:
        super().__init__()
        self._word, self._lines = word, lines
        (self._features,), self._eps = plain.normalized_shape, plain.eps
        cuts = lines.grid.cuts(word, "weight")
        self.weight = lines.part(plain.weight, cuts)
        self._normalize: Any = _Normalize if isinstance(plain, nn.LayerNorm) else _Scale
        self.bias = lines.part(plain.bias, cuts) if isinstance(plain, nn.LayerNorm) else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the residual stream. The result is cut like the stream."""
        stream = self._lines.grid.stream
        check(x, stream, self._word)
        ways = [self._lines.exact(stream.columns, phase) for phase in (Phase.FORWARD, Phase.BACKWARD)]
        normed: Tensor = self._normalize.apply(x, self._features, self._eps, *ways) * self.weight
        return laid((normed if self.bias is None else normed + self.bias).to(x.dtype), stream)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, features: int, eps: float, there: GridLine, back: GridLine) -> Tensor:
        wide = x.to(wire_dtype(x.dtype))
        mean, squares = merged(wide, there)
        scale = (squares / features + eps).rsqrt()[..., None]
        normed = (wide - mean[..., None]) * scale
        ctx.features, ctx.back = features, back
        ctx.save_for_backward(normed, scale)
        return normed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        normed, scale = ctx.saved_tensors
        given = gradients[0]
        sums_here = torch.stack((given.sum(dim=-1), (given * normed).sum(dim=-1)))  # [2, b, s]
        first, second = (all_reduce(sums_here, ctx.back.group, ctx.back.channel) / ctx.features)[..., None].unbind()
        return scale * (given - first - normed * second), None, None, None, None


class _Scale(torch.autograd.Function):
    """Autograd function that divides by the root mean square."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, features: int, eps: float, there: GridLine, back: GridLine) -> Tensor:
        wide = x.to(wire_dtype(x.dtype))
        squares = all_reduce(wide.square().sum(dim=-1), there.group, there.channel)
        scale = (squares / features + eps).rsqrt()[..., None]
        normed = wide * scale
        ctx.features, ctx.back = features, back
        ctx.save_for_backward(normed, scale)
        return normed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        normed, scale = ctx.saved_tensors
        given = gradients[0]
        along = all_reduce((given * normed).sum(dim=-1), ctx.back.group, ctx.back.channel) / ctx.features
        return scale * (given - normed * along[..., None]), None, None, None, None


def merged(x: Tensor, line: GridLine) -> tuple[Tensor, Tensor]:
    """Return the mean and the sum of squared deviations over all features, both [b, s].

    The shape of this rank's x is [b, s, h / q].
    """
    mean = x.mean(dim=-1)
    sums_here = torch.stack((mean, (x - mean[..., None]).square().sum(dim=-1)))[None]  # [1, 2, b, s]
    means, squares = gather(sums_here, line).wait().unbind(dim=1)  # [q, b, s]
    mean = means.mean(dim=0)
    return mean, squares.sum(dim=0) + x.shape[-1] * (means - mean).square().sum(dim=0)
