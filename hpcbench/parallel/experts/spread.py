"""Expert parallelism. Tokens are sent to the ranks that hold their experts, and the results are sent back.

An expert-parallel group consists of consecutive data-parallel ranks. Each rank holds a part of a layer's experts and
the complete router. Tensor-parallel ranks process the same tokens. Each holds a part of every expert, split like an
MLP. Partial results are summed on the ranks that hold the expert, before the rows are sent back. Context-parallel ranks
route their own positions and exchange the counts of selected experts.

The shared expert is computed while rows are sent to the experts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.contract.experts import Experts
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.experts import parcels
from hpcbench.parallel.experts.routing import Routing
from hpcbench.parallel.experts.travel import Way, arrive, start
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.regions import WHOLE, Border, enter, leave

Shared = Callable[[Tensor], Tensor] | None
Apply = Callable[[Tensor, Routing, nn.ModuleDict, Shared], Tensor]
"""Function that computes the layer output from the input, the routing, the rank's experts and the shared expert."""


class WholeShares:
    """Function that returns expert shares over whole samples. Every rank holds the same number of positions.

    Parameters
    ----------
    group
        Context-parallel group, whose ranks hold different positions of the same samples.
    exact
        Channel without compression, used for the counts.
    """

    def __init__(self, group: Group, exact: Channel) -> None:
        self._group, self._exact = group, exact

    def __call__(self, expert: Tensor, count: int) -> Tensor:
        """Return each expert's share of all ranks' choices, [b, E], given the choices of this rank, [b, s, k].

        This is a collective call.
        """
        b, s, k = expert.shape
        counts = F.one_hot(expert, count).sum(dim=(1, 2)).double().cpu().numpy().reshape(-1)
        self._group.all_reduce(counts, channel=self._exact).wait()
        return torch.from_numpy(counts).view(b, count).to(expert.device) / (s * k * self._group.size)


class Spread:
    """Function that applies experts that are distributed over ranks.

    Parameters
    ----------
    mesh
        Mesh whose ``ep`` group distributes the experts, and whose ``tp`` group splits each expert.
    policy
        Policy that provides the channels of dimensions EP and TP.
    settings
        Settings of the mixture-of-experts layers.
    overlap
        Whether row transfers overlap with the computation of the shared expert.
    """

    def __init__(self, mesh: Mesh, policy: Policy, settings: Experts, *, overlap: bool) -> None:
        self._group, self._settings = mesh.ep, settings
        self._ranks = mesh.ep.size if mesh.ep else 1
        self._exact = policy.channel(Dimension.EXACT, Phase.FORWARD, MessageKind.ACT)
        self._border = Border.of(mesh.tp, WHOLE, policy)
        self._way = None
        if mesh.ep:
            there = policy.channel(Dimension.EP, Phase.FORWARD, MessageKind.ACT)
            back = policy.channel(Dimension.EP, Phase.BACKWARD, MessageKind.GRAD)
            self._way = Way(mesh.ep, there, back, overlap)

    def __call__(self, x: Tensor, routing: Routing, experts: nn.ModuleDict, shared: Shared) -> Tensor:
        """Return the layer output, [b, s, h], for the input x, [b, s, h]."""
        h = x.shape[2]
        k = routing.expert.shape[2]
        plan = self._parcels(routing)
        choices = x.reshape(-1, 1, h).expand(-1, k, h).reshape(-1, h)  # each row is sent at most once
        leaving = _taken(choices, plan.source)
        if self._way is None:
            extra = shared(x) if shared else None
            results = self._computed(leaving, plan, experts)
        else:
            coming = start(leaving, self._way, plan.counts)
            extra = shared(x) if shared else None
            done = self._computed(arrive(*coming), plan, experts)
            results = arrive(*start(done, self._way, plan.counts.back))
        y = joined(results, plan.back, routing).to(x.dtype)
        return y if extra is None else y + extra

    def _parcels(self, routing: Routing) -> parcels.Parcels:
        count, positions = self._settings.count, routing.expert.shape[1]
        if self._settings.drop == "none":
            return parcels.without_places(routing, count=count, ranks=self._ranks, exchange=self._exchange)
        places = self._settings.places(positions)
        return parcels.with_places(routing, count=count, places=places, ranks=self._ranks)

    def _exchange(self, counts: Sequence[int]) -> list[int]:
        """Exchange the row counts, and return the row counts of this rank's experts."""
        if self._group is None:
            return list(counts)
        sent = np.asarray(counts, dtype=np.int64)
        received = np.empty_like(sent)
        each = [len(counts) // self._ranks] * self._ranks
        self._group.all_to_all(sent, received, (each, each), channel=self._exact).wait()
        return [int(count) for count in received]

    def _computed(self, rows: Tensor, plan: parcels.Parcels, experts: nn.ModuleDict) -> Tensor:
        """Compute the results of the received rows, in the order in which the rows arrived."""
        entered = enter(rows.index_select(0, plan.by_expert)[None], self._border)[0]
        layers: list[Any] = list(experts.values())
        pieces = torch.split(entered, plan.experts)
        partial = [
            F.linear(layer.activation(layer.up(piece)), layer.down.weight)
            for layer, piece in zip(layers, pieces, strict=True)
        ]
        summed = leave(torch.cat(partial)[None], self._border)[0]
        if layers[0].down.bias is not None:
            biases = [layer.down.bias.expand(n, -1) for layer, n in zip(layers, plan.experts, strict=True)]
            summed = summed + torch.cat(biases)
        return summed.index_select(0, plan.by_sender)


def joined(results: Tensor, back: Tensor, routing: Routing) -> Tensor:
    """Sum the results of each token, weighted by its gates, [b, s, h]. Dropped choices add nothing."""
    b, s, k = routing.gate.shape
    wide = _taken(results, back).to(routing.gate.dtype).view(b, s, k, -1)
    return (wide * (routing.gate * routing.accepted)[..., None]).sum(dim=2)


def _taken(rows: Tensor, index: Tensor) -> Tensor:
    """Select rows by index. An index equal to the number of rows selects zeros."""
    return F.pad(rows, (0, 0, 0, 1)).index_select(0, index)


def spread_experts(model: nn.Module, mesh: Mesh, policy: Policy, settings: Experts | None, *, overlap: bool) -> None:
    """Modify the mixture-of-experts layers of a model in-place to use expert parallelism.

    The call is a no-op if each rank holds all experts completely and all positions of its samples.
    """
    if settings is None:
        return
    layers: list[Any] = [module for module in model.modules() if hasattr(module, "apply_experts")]
    if mesh.ep is not None or mesh.tp.size > 1:
        apply = Spread(mesh, policy, settings, overlap=overlap)
        for layer in layers:
            layer.apply_experts = apply
    if mesh.cp is not None:
        shares = WholeShares(mesh.cp, policy.channel(Dimension.EXACT, Phase.FORWARD, MessageKind.ACT))
        for layer in layers:
            layer.shares = shares
