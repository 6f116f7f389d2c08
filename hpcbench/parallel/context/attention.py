"""Application of context parallelism to a model: selection of positions, and attention over several ranks."""

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
"""Attention function and order of positions, keyed by method."""


class Positions:
    """The positions that this rank holds of every sample.

    Parameters
    ----------
    mesh
        Mesh. The positions are divided among the ranks of its ``cp`` group. The layout of the mesh selects the method.
    policy
        Policy that provides the channels.
    overlap
        Whether communication overlaps with the computation of attention.
    """

    def __init__(self, mesh: Mesh, policy: Policy, *, overlap: bool) -> None:
        self._group = mesh.cp
        self._attention, self._order = WAYS[mesh.layout.context]
        self._policy, self._overlap = policy, overlap

    def places(self, positions: int, device: torch.device) -> Tensor:
        """Return the global indices of this rank's positions within the sample, [positions]."""
        rank, size = (self._group.rank, self._group.size) if self._group else (0, 1)
        return self._order(positions, rank, size).to(device)

    def select(self, tokens: Tensor) -> Tensor:
        """Select this rank's positions of samples: [b, s] -> [b, s/p]."""
        if self._group is None:
            return tokens
        return tokens[:, self.places(tokens.shape[1] // self._group.size, tokens.device)]

    def put_into(self, model: Any) -> None:
        """In a part of the model, set these positions in the blocks and, if present, in the embedding."""
        if self._group is None:
            return
        core = partial(self._attention, ranks=Sharers.of(self._group, self._policy, overlap=self._overlap))
        for block in model.blocks.values():
            block.attention.core, block.attention.places = core, self.places
        if model.embedding is not None:
            model.embedding.places = self.places
