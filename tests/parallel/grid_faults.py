"""Planted faults in tensor grids."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from planting import Patch, list_faults
from torch import Tensor

from hpcbench.contract.grid import Axes, ExtraCut, Grid
from hpcbench.parallel.gradients import Gradients
from hpcbench.parallel.grid import gathered, linear, loss, norm, summa, vocabulary
from hpcbench.parallel.grid.linear import GridLinear
from hpcbench.parallel.grid.lines import GridLine, Lines
from hpcbench.parallel.grid.moves import Coming, here
from hpcbench.parallel.sharding import Shard


def axes_swapped() -> Patch:
    """The weight of a row layer is cut with axes i and j exchanged."""
    cuts = Grid.cuts

    def faulty(self: Grid, word: str, attribute: str) -> tuple[Axes, ...]:
        places = cuts(self, word, attribute)
        return places[::-1] if (word, attribute) == ("row", "weight") else places

    return patch.object(Grid, "cuts", faulty)


def _completed_but(left_out: Callable[[Axes], bool]) -> Patch:
    complete = Gradients._reduce_partial

    def faulty(self: Gradients) -> None:
        pieces = self._pieces
        self._pieces = [piece for piece in pieces if not left_out(piece.bucket.summands)]
        complete(self)
        self._pieces = pieces

    return patch.object(Gradients, "_reduce_partial", faulty)


def gradients_of_biases_and_norms_left_as_summands() -> Patch:
    """Gradients of biases and norms include only the rank's own samples."""
    return _completed_but(lambda axes: axes not in ((), ("e",)))


def depth_left_out() -> Patch:
    """Weight gradients are not summed over the layers of the 2.5-D grid."""
    return _completed_but(lambda axes: axes == ("e",))


def gathered_in_another_order() -> Patch:
    """The pieces of a gathered matrix are shifted by one rank."""
    gather = gathered.gather

    def faulty(x: Tensor, line: GridLine | None) -> Coming:
        coming = gather(x, line)
        return Coming(None, lambda: torch.roll(coming.wait(), len(x) if line else 0, 0))

    return patch.object(gathered, "gather", faulty)


def mean_divided_twice() -> Patch:
    """The gradient of the mean over all tokens is divided twice by the number of ranks that hold tokens."""
    backward = loss._CrossEntropy.backward

    def faulty(ctx: Any, *gradients: Tensor) -> Any:
        ctx.tokens *= 2
        return backward(ctx, *gradients)

    return patch.object(loss._CrossEntropy, "backward", staticmethod(faulty))


def stale_second_buffer() -> Patch:
    """The product uses the previous piece, which is still in the buffer."""
    piece = summa._piece
    return patch.object(summa, "_piece", lambda operand, s: piece(operand, max(s - 1, 0)))


def statistics_of_own_features() -> Patch:
    """A norm computes mean and variance over the rank's own features only."""

    def faulty(x: Tensor, line: GridLine) -> tuple[Tensor, Tensor]:
        mean = x.mean(dim=-1)
        return mean, line.group.size * (x - mean[..., None]).square().sum(dim=-1)

    return patch.object(norm, "merged", faulty)


def backward_sums_of_own_features() -> Patch:
    """In the backward pass, a norm sums over the rank's own features only."""
    return patch.object(norm, "all_reduce", lambda x, group, channel: x * group.size)


def first_piece_of_the_vocabulary() -> Patch:
    """Every rank treats its gathered piece of the embedding table as the first piece."""
    look_up = vocabulary.rows_of
    return patch.object(vocabulary, "rows_of", lambda tokens, table, piece: look_up(tokens, table, 0))


def own_summand_for_the_sum() -> Patch:
    """The rank that owns a reduced piece keeps its own contribution instead of the sum."""
    return patch.object(summa, "reduce", lambda x, root, line: here(x))


def scattered_before_the_sum() -> Patch:
    """A rank takes its block from its own contribution instead of from the sum."""

    def faulty(x: Tensor, line: GridLine | None) -> Coming:
        if line is None:
            return here(x)
        return here(x.chunk(line.group.size)[line.group.rank])

    return patch.object(gathered, "scatter", faulty)


def targets_of_the_first_samples() -> Patch:
    """Every rank compares its logits with the targets of the first samples."""
    select = Lines.select_rows

    def faulty(self: Lines, x: Tensor, axes: Axes) -> Tensor:
        mine = select(self, x, axes)
        return x[: len(mine)]

    return patch.object(Lines, "select_rows", faulty)


def weight_gathered_once() -> Patch:
    """Weights prefetched for the next layer come from the previous step."""
    first: dict[GridLinear, Tensor] = {}

    def faulty(self: GridLinear) -> Coming:
        if self not in first:
            first[self] = linear.gather(self.weight, self._lines.there(self._product.forward.right)).wait()
        return here(first[self])

    return patch.object(GridLinear, "_gathered", faulty)


def norm_counts_every_layer_of_the_grid() -> Patch:
    """Each layer of the 2.5-D grid that holds a copy of a weight adds the gradient of the copy to the norm."""
    return patch.object(Shard, "counts_in_norm", True)


def broadcast_over_the_other_axis() -> Patch:
    """Weights of a streamed product move along the axis of the activations."""
    there = Lines.there

    def faulty(self: Lines, move: ExtraCut | None) -> GridLine | None:
        return there(self, ExtraCut(move.dim, "j") if move and move.axis == "i" else move)

    return patch.object(Lines, "there", faulty)


FAULTS = list_faults(
    axes_swapped,
    gradients_of_biases_and_norms_left_as_summands,
    depth_left_out,
    gathered_in_another_order,
    mean_divided_twice,
    stale_second_buffer,
    statistics_of_own_features,
    backward_sums_of_own_features,
    first_piece_of_the_vocabulary,
    own_summand_for_the_sum,
    scattered_before_the_sum,
    targets_of_the_first_samples,
    weight_gathered_once,
    norm_counts_every_layer_of_the_grid,
    broadcast_over_the_other_axis,
)
