"""Deliberate errors, one each: the parity test must see every one of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from mpi4py import MPI
from torch import Tensor

from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.shards import shards
from hpcbench.comm.work import Work
from hpcbench.parallel import buckets, linear, pipeline, regions, sequence, vocabulary
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.gradients import Gradients
from hpcbench.parallel.pieces import Piece
from hpcbench.parallel.regions import Border
from hpcbench.train import trainer


def divided_twice() -> object:
    """The gradient is divided by the number of replicas once too often."""
    begin = DataParallel.begin

    def faulty(self: DataParallel, *, micro_batches: int, loss_scale: float) -> None:
        begin(self, micro_batches=micro_batches, loss_scale=loss_scale * self._mesh.dp.size)

    return patch.object(DataParallel, "begin", faulty)


def reduce_left_out() -> object:
    """A row layer keeps its partial sum."""

    def faulty(x: Tensor, border: Border) -> Tensor:
        return x

    return patch.object(linear, "leave", faulty)


def backward_reduce_left_out() -> object:
    """A column layer passes on the gradient of its own part only."""

    def faulty(x: Tensor, border: Border) -> Tensor:
        return x

    return patch.object(linear, "enter", faulty)


def own_piece_exact() -> object:
    """In an all-gather each rank keeps its own piece as it was before the codec: replicas decode different bytes."""
    all_gather = Group.all_gather

    def faulty(self: Group, src: Array, dst: Array, *, channel: Channel) -> Work:
        own = src.copy()
        all_gather(self, src, dst, channel=channel).wait()
        dst[shards(dst.size, self.size)[self.rank]] = own
        return Work.nothing(channel)

    return patch.object(Group, "all_gather", faulty)


def whole_and_split_mixed() -> object:
    """What all ranks of a tensor group hold lies in a codec's block with what they split."""
    return patch.object(buckets, "is_split", lambda shard: True)


def tied_gradient_left_out() -> object:
    """The two copies of the embedding's weight are updated with their own gradients only."""
    return patch.object(Gradients, "_reduce_tied", lambda self: None)


def one_replica_dropped() -> object:
    """The last replica's gradients are lost."""
    start = Gradients._start

    def faulty(self: Gradients, piece: Piece) -> None:
        if self._mesh.dp.rank == self._mesh.dp.size - 1:
            piece.bucket.gradients.zero_()
        start(self, piece)

    return patch.object(Gradients, "_start", faulty)


def boundary_gradient_stale() -> object:
    """A stage sends the gradient of the first micro-batch again and again."""
    send = pipeline.Pipeline._send
    first: dict[int, Tensor] = {}

    def faulty(self: pipeline.Pipeline, x: Tensor, i: int, boundary: int, *, forward: bool) -> None:
        if not forward:
            x = first.setdefault(id(self), x)
        send(self, x, i, boundary, forward=forward)

    return patch.object(pipeline.Pipeline, "_send", faulty)


def statistics(fault: Callable[[Tensor, Tensor, MPI.Op], Tensor]) -> object:
    """What the softmax's statistics are instead: a function of a rank's own, of the group's, and of the operation."""

    def faulty(x: Tensor, group: Group, channel: Channel, op: MPI.Op) -> Tensor:
        return fault(x, regions.all_reduce(x, group, channel, op), op)

    return patch.object(vocabulary, "all_reduce", faulty)


def largest_logit_left_out() -> object:
    """Each rank takes the exponentials relative to the largest logit of its own."""
    return statistics(lambda own, whole, op: own if op is MPI.MAX else whole)


def exponentials_left_out() -> object:
    """Each rank divides by the sum of its own exponentials."""
    return statistics(lambda own, whole, op: whole if op is MPI.MAX else torch.stack((own[0], whole[1])))


def target_counted_twice() -> object:
    """Two ranks give the logit of the target."""
    return statistics(lambda own, whole, op: whole if op is MPI.MAX else torch.stack((whole[0], 2 * whole[1])))


def rows_off_by_one_rank() -> object:
    """A rank looks tokens up as if it held the rows of the next one."""

    def faulty(vocab: int, group: Group) -> slice:
        return shards(vocab, group.size)[(group.rank + 1) % group.size]

    return patch.object(vocabulary, "held_rows", faulty)


def summands_left_out() -> object:
    """Norms and biases are updated with the gradients of a rank's own positions."""
    return patch.object(Gradients, "_reduce_partial", lambda self: None)


def gathered_in_wrong_order() -> object:
    """The positions of the ranks are joined from the last rank to the first."""

    def faulty(x: Tensor, group: Group, channel: Channel) -> Tensor:
        return torch.cat(sequence.all_gather(x, group, channel).chunk(group.size, dim=1)[::-1], dim=1)

    return patch.object(trainer, "SEQUENCE", regions.SEQUENCE._replace(expand=faulty))


FAULTS: dict[str, Callable[[], object]] = {
    fault.__name__: fault
    for fault in (
        divided_twice,
        reduce_left_out,
        backward_reduce_left_out,
        own_piece_exact,
        whole_and_split_mixed,
        tied_gradient_left_out,
        one_replica_dropped,
        boundary_gradient_stale,
        largest_logit_left_out,
        exponentials_left_out,
        target_counted_twice,
        rows_off_by_one_rank,
        summands_left_out,
        gathered_in_wrong_order,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run the block with one fault in place."""
    with FAULTS[name]():  # type: ignore[attr-defined]
        yield
