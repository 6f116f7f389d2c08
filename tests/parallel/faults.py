"""Deliberate errors, one each: the parity test must see every one of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from torch import Tensor

from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.shards import shards
from hpcbench.comm.work import Work
from hpcbench.parallel import buckets, linear, pipeline
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.gradients import Gradients
from hpcbench.parallel.pieces import Piece


def divided_twice() -> object:
    """The gradient is divided by the number of replicas once too often."""
    begin = DataParallel.begin

    def faulty(self: DataParallel, *, micro_batches: int, loss_scale: float) -> None:
        begin(self, micro_batches=micro_batches, loss_scale=loss_scale * self._mesh.dp.size)

    return patch.object(DataParallel, "begin", faulty)


def reduce_left_out() -> object:
    """A row layer keeps its partial sum."""

    def faulty(x: Tensor, group: Group, forward: Channel) -> Tensor:
        return x

    return patch.object(linear, "leave", faulty)


def backward_reduce_left_out() -> object:
    """A column layer passes on the gradient of its own part only."""

    def faulty(x: Tensor, group: Group, backward: Channel) -> Tensor:
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

    def faulty(self: pipeline.Pipeline, x: Tensor, peer: int, i: int, *, forward: bool) -> object:
        if not forward:
            x = first.setdefault(id(self), x)
        return send(self, x, peer, i, forward=forward)

    return patch.object(pipeline.Pipeline, "_send", faulty)


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
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run the block with one fault in place."""
    with FAULTS[name]():  # type: ignore[attr-defined]
        yield
