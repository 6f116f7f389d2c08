"""Where the residual stream enters and leaves a tensor-parallel region, as autograd functions.

Each is the other's mirror image (arXiv 1909.08053, section 3: the operators f and g). A codec in a channel is invisible
to autograd: the gradient passes as if the decoded values were the exact ones (straight-through).
"""

from typing import Any

import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.parallel.buffers import from_host, to_host


def all_reduce(x: Tensor, group: Group, channel: Channel) -> Tensor:
    """The sum of `x` over the group, in a new tensor."""
    if group.size == 1:
        return x
    host = to_host(x.clone())
    group.all_reduce(host.reshape(-1), channel=channel).wait()
    return from_host(host, x)


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, backward: Channel) -> Tensor:
        ctx.group, ctx.channel = group, backward
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return all_reduce(gradients[0], ctx.group, ctx.channel), None, None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, forward: Channel) -> Tensor:
        return all_reduce(x, group, forward)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0], None, None


def enter(x: Tensor, group: Group, backward: Channel) -> Tensor:
    """Identity forward; backward the sum of the gradients over the group."""
    y: Tensor = _Enter.apply(x, group, backward)  # type: ignore[no-untyped-call]
    return y


def leave(x: Tensor, group: Group, forward: Channel) -> Tensor:
    """The sum over the group forward; identity backward."""
    y: Tensor = _Leave.apply(x, group, forward)  # type: ignore[no-untyped-call]
    return y
