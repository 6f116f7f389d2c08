"""Planted faults in layers with experts."""

from typing import Any
from unittest.mock import patch

import torch
from planting import Patch, list_faults
from torch import Tensor

from hpcbench.parallel import parallelize
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.experts import parcels, routing, spread, travel
from hpcbench.parallel.experts.penalty import Penalty
from hpcbench.parallel.experts.routing import Losses, Routing, Shares
from hpcbench.parallel.experts.spread import WholeShares
from hpcbench.parallel.gradients import Gradients
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.pieces import Piece
from hpcbench.parallel.regions import Border
from hpcbench.train import experts


def summed_over_all_replicas() -> Patch:
    """Expert gradients are summed over all data-parallel ranks, including ranks with different experts."""
    return patch.object(Mesh, "replicas", lambda self, ep: self.dp)


def divided_by_the_holders_only() -> Patch:
    """Expert gradients are divided by the number of ranks with the expert instead of the number of all replicas."""
    start = Gradients._start

    def faulty(self: Gradients, piece: Piece) -> None:
        scale = self._loss_scale
        self._loss_scale = scale / piece.bucket.ep
        start(self, piece)
        self._loss_scale = scale

    return patch.object(Gradients, "_start", faulty)


def dropped_tokens_get_gradient() -> Patch:
    """The gate of a dropped choice receives the gradient of the result stored in its slot."""
    join = spread.joined

    def faulty(results: Tensor, back: Tensor, chosen: Routing) -> Tensor:
        nearest = results.index_select(0, back.clamp(max=len(results) - 1)).detach().view(*chosen.gate.shape, -1)
        leak = (chosen.gate - chosen.gate.detach()) * ~chosen.accepted  # zero, except for its gradient
        return join(results, back, chosen) + (nearest * leak[..., None]).sum(dim=2)

    return patch.object(spread, "joined", faulty)


def dropped_tokens_take_the_last_place() -> Patch:
    """A token that exceeds the capacity overwrites the token before it."""
    make = parcels.with_places

    def faulty(chosen: Routing, *, count: int, places: int, ranks: int) -> parcels.Parcels:
        everyone = chosen._replace(place=chosen.place.clamp(max=places - 1), accepted=torch.ones_like(chosen.accepted))
        return make(everyone, count=count, places=places, ranks=ranks)

    return patch.object(parcels, "with_places", faulty)


def results_in_the_order_of_experts() -> Patch:
    """Results are returned in the order of computation instead of the order in which rows were received."""
    order = parcels.Parcels.by_sender
    assert isinstance(order, property)
    return patch.object(parcels.Parcels, "by_sender", property(lambda self: torch.arange(len(self.by_expert))))


def gates_left_out() -> Patch:
    """The results of a token's experts are added without gate weights."""
    join = spread.joined

    def faulty(results: Tensor, back: Tensor, chosen: Routing) -> Tensor:
        return join(results, back, chosen._replace(gate=torch.ones_like(chosen.gate)))

    return patch.object(spread, "joined", faulty)


def losses_counted_twice() -> Patch:
    """The router losses are counted twice."""
    return patch.object(Penalty, "factor", property(lambda self: self.given, _first_of_all), create=True)


def _first_of_all(penalty: Penalty, factor: float) -> None:
    penalty.given = 2 * factor  # type: ignore[attr-defined]


def losses_of_a_whole_micro_batch() -> Patch:
    """Expert shares are computed per micro-batch, so the micro-batch size changes the balance loss."""
    plain = experts.losses

    def faulty(logits: Tensor, expert: Tensor, shares: Shares) -> Losses:
        if logits.shape[0] != 2:
            return plain(logits, expert, shares)
        return plain(logits.flatten(0, 1)[None], expert.flatten(0, 1)[None], shares)

    return patch.object(experts, "losses", faulty)


def samples_compete_for_places() -> Patch:
    """Tokens of different samples in a micro-batch compete for the same capacity."""
    plain = routing.by_position

    def faulty(expert: Tensor, values: Tensor, count: int) -> Tensor:
        together = expert.shape[0] == 2
        return plain(expert.flatten(0, 1)[None] if together else expert, values, count).view_as(expert)

    return patch.object(routing, "by_position", faulty)


def first_experts_everywhere() -> Patch:
    """Every rank holds the first experts of a layer."""
    keep = parallelize.cut_evenly

    def faulty(n: int, count: int) -> list[slice]:
        return [keep(n, count)[0]] * count

    return patch.object(parallelize, "cut_evenly", faulty)


def gradients_in_another_order() -> Patch:
    """The gradients of rows are sent in an order that differs from the order of the received rows."""
    begin = travel.Move.begin

    def faulty(self: travel.Move, x: Tensor, counts: travel.Counts, channel: Any) -> None:
        backward = channel is self.way.backward
        begin(self, torch.roll(x, len(x) // 2, 0) if backward else x, counts, channel)

    return patch.object(travel.Move, "begin", faulty)


def norm_counts_experts_of_one_rank() -> Patch:
    """The gradient norm includes only the experts of the first replica."""

    def faulty(self: DataParallel) -> list[Piece]:
        return self.pieces if self._scattered or self._mesh.dp.rank == 0 else []

    return patch.object(DataParallel, "_own", property(faulty))


def expert_sum_left_out() -> Patch:
    """A tensor-parallel rank continues with the partial result of its own part of an expert."""

    def faulty(x: Tensor, border: Border) -> Tensor:
        return x

    return patch.object(spread, "leave", faulty)


def shares_of_the_own_positions() -> Patch:
    """The balance loss uses the expert shares of the rank's own positions instead of those of the full sample."""
    return patch.object(WholeShares, "__call__", lambda self, expert, count: routing.own_shares(expert, count))


def holders_of_one_part_of_the_positions() -> Patch:
    """Expert gradients are summed over dp / ep, but not over context-parallel ranks."""
    # with two replicas of different experts, or without a pipeline, the corresponding groups have a single rank
    return patch.object(Mesh, "replicas", lambda self, ep: self.ends if ep > 1 else self.dp)


FAULTS = list_faults(
    summed_over_all_replicas,
    divided_by_the_holders_only,
    dropped_tokens_get_gradient,
    dropped_tokens_take_the_last_place,
    results_in_the_order_of_experts,
    gates_left_out,
    losses_counted_twice,
    losses_of_a_whole_micro_batch,
    samples_compete_for_places,
    first_experts_everywhere,
    gradients_in_another_order,
    norm_counts_experts_of_one_rank,
    shares_of_the_own_positions,
    holders_of_one_part_of_the_positions,
    expert_sum_left_out,
)
