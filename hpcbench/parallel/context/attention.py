"""Context parallelism of a model: the positions of a rank, and attention over the ranks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hpcbench.comm.policy import Policy
from hpcbench.contract.layout import Context
from hpcbench.parallel.context.passing import Sharers
from hpcbench.parallel.context.places import Order, in_order, zigzag
from hpcbench.parallel.context.ring import ring_attention
from hpcbench.parallel.context.rows import row_attention
from hpcbench.parallel.context.ulysses import head_attention
from hpcbench.parallel.mesh import Mesh

Attention = Callable[..., Tensor]

WAYS: dict[Context, tuple[Attention, Order]] = {
    "ring": (ring_attention, zigzag),
    "rsa": (row_attention, zigzag),
    "ulysses": (head_attention, in_order),
}
"""The attention of each method, and its order of positions."""


class Positions:
    """The positions that this rank has of every sample.

    Parameters
    ----------
    mesh
        Mesh whose ``cp`` group shares the positions, by the method in its layout.
    policy
        Policy that gives the channels.
    overlap
        Whether messages move while the attention is computed.
    """

    def __init__(self, mesh: Mesh, policy: Policy, *, overlap: bool) -> None:
        self._group = mesh.cp
        self._attention, self._order = WAYS[mesh.layout.context]
        self._policy, self._overlap = policy, overlap

    def places(self, positions: int, device: torch.device) -> Tensor:
        """Return the places in the sample of this rank's positions: [positions]."""
        rank, size = (self._group.rank, self._group.size) if self._group else (0, 1)
        return self._order(positions, rank, size).to(device)

    def select(self, tokens: Tensor) -> Tensor:
        """Select this rank's positions of samples: [b, s] -> [b, s/p]."""
        if self._group is None:
            return tokens
        return tokens[:, self.places(tokens.shape[1] // self._group.size, tokens.device)]

    def put_into(self, model: Any) -> None:
        """Let a part of the model compute with these positions: its blocks, and the embedding if it has one."""
        if self._group is None:
            return
        core = partial(self._attention, ranks=Sharers.of(self._group, self._policy, overlap=self._overlap))
        for block in model.blocks.values():
            block.attention.core, block.attention.places = core, self.places
        if model.embedding is not None:
            model.embedding.places = self.places
