"""Planted faults in context parallelism."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from planting import Patch, list_faults
from torch import Tensor

from hpcbench.parallel.context import attention, passing, ring, rows, ulysses
from hpcbench.parallel.context.blocks import Attended, AttentionGradients, Online, attend
from hpcbench.parallel.context.passing import Homeward, Sharers
from hpcbench.parallel.context.places import Pair, in_order
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.gradients import Gradients as Reductions
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.pieces import Piece
from hpcbench.train.model import whole_sample


def _both(name: str, faulty: Callable[..., Any]) -> Patch:
    """Patch a function that is used by both ring variants."""
    stack = ExitStack()
    for module in (ring, rows):
        stack.enter_context(patch.object(module, name, faulty))
    return stack


def mask_off_by_one_block() -> Patch:
    """A rank attributes the received block to the rank after its owner."""
    pair = ring.pair

    def faulty(positions: int, rank: int, source: int, *, causal: bool) -> Pair:
        return pair(positions, rank, source + 1 if source != rank else rank, causal=causal)

    return _both("pair", faulty)


def stale_block() -> Patch:
    """The buffer still contains the block of the previous hop when it is read."""

    def faulty(own_block: Tensor, ranks: Sharers) -> Iterator[tuple[int, Tensor]]:
        before = own_block.clone()
        for source, block in passing.go_round(own_block, ranks):
            now = block.clone()
            yield source, before
            before = now

    return _both("go_round", faulty)


def blocks_never_weighed_again() -> Patch:
    """Blocks that were already combined are not reweighted when another block arrives."""
    add = Online.add

    def faulty(self: Online, queries: slice, block: Attended) -> None:
        before = self._values[:, :, queries].clone()
        add(self, queries, block)
        share = (block.weight - self._weight[:, :, queries]).exp()[..., None]
        self._values[:, :, queries] = before + share * block.values

    return patch.object(Online, "add", faulty)


def share_of_the_own_block() -> Patch:
    """In the backward pass, attention probabilities are normalized over the rank's own keys instead of all keys."""
    backward = ring.attend_backward

    def faulty(
        gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended, *, causal: bool
    ) -> AttentionGradients:
        alone = attend(q, k, v, causal=causal)
        return backward(gradient, q, k, v, attended._replace(weight=alone.weight), causal=causal)

    return patch.object(ring, "attend_backward", faulty)


def sums_stay() -> Patch:
    """A rank's gradients of keys and values include only the contributions of its own queries."""

    def faulty(self: Homeward) -> Tensor:
        assert self._own is not None
        self._with_what_came(self._own)
        return self._own

    return patch.object(Homeward, "at_home", faulty)


def heads_in_another_order() -> Patch:
    """The returned heads are shifted by the number of heads of one rank."""
    joined = ulysses._joined

    def faulty(turns: list[Tensor]) -> Tensor:
        x = joined(turns)
        return torch.roll(x, x.shape[2] // len(turns[0]), 2)

    return patch.object(ulysses, "_joined", faulty)


def positions_as_in_a_whole_sample() -> Patch:
    """A rank treats its positions as the first positions of the sample."""
    put_into = attention.Positions.put_into

    def faulty(self: attention.Positions, model: Any) -> None:
        put_into(self, model)
        for block in model.blocks.values():
            block.attention.places = whole_sample
        if model.embedding is not None:
            model.embedding.places = whole_sample

    return patch.object(attention.Positions, "put_into", faulty)


def neighbouring_positions_in_the_ring() -> Patch:
    """Positions are distributed contiguously, but the ring assumes a zigzag order."""
    ways = {way: (how, in_order) for way, (how, _) in attention.WAYS.items()}
    return patch.object(attention, "WAYS", ways)


def positions_of_one_rank_left_out() -> Patch:
    """Gradients are averaged only over data-parallel replicas, so the gradients of other positions are lost."""
    start = Reductions._start

    def faulty(self: Reductions, piece: Piece) -> None:
        if self._mesh.cp.rank:
            piece.bucket.gradients.zero_()
        start(self, piece)

    return patch.object(Reductions, "_start", faulty)


def mean_divided_twice() -> Patch:
    """The gradient of the mean over all tokens is divided a second time by the number of context-parallel ranks."""
    begin = DataParallel.begin

    def faulty(self: DataParallel, *, micro_batches: int, loss_scale: float) -> None:
        begin(self, micro_batches=micro_batches, loss_scale=loss_scale * self._mesh.cp.size)

    return patch.object(DataParallel, "begin", faulty)


def other_samples_on_each_rank() -> Patch:
    """Context-parallel ranks read different samples, as if they were replicas."""
    initialize = Mesh.__init__

    def faulty(self: Mesh, *arguments: Any) -> None:
        initialize(self, *arguments)
        self.sample_rank = self.dp.rank % self.layout.dp

    return patch.object(Mesh, "__init__", faulty)


FAULTS = list_faults(
    mask_off_by_one_block,
    stale_block,
    blocks_never_weighed_again,
    share_of_the_own_block,
    sums_stay,
    heads_in_another_order,
    positions_as_in_a_whole_sample,
    neighbouring_positions_in_the_ring,
    positions_of_one_rank_left_out,
    mean_divided_twice,
    other_samples_on_each_rank,
)
