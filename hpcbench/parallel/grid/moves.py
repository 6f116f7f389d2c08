"""Asynchronous collectives along an axis: gather, reduce-scatter, broadcast and reduce. Each returns a `Coming`.

Blocks are cut and concatenated along the outermost dim.
"""

from collections.abc import Callable

from torch import Tensor, nn

from hpcbench.comm.work import Work
from hpcbench.parallel.buffers import Buffer, from_buffer, room, to_buffer
from hpcbench.parallel.grid.lines import GridLine


class Coming:
    """Handle of a block that is being transferred or has arrived."""

    def __init__(self, work: Work | None, take: Callable[[], Tensor]) -> None:
        self._work, self._take = work, take

    def wait(self) -> Tensor:
        """Wait for the block and return it. This method can be called only once."""
        if self._work:
            self._work.wait()
        return self._take()


def here(x: Tensor) -> Coming:
    """Wrap a block that requires no communication."""
    return Coming(None, lambda: x)


def gather(x: Tensor, line: GridLine | None) -> Coming:
    """Gather the blocks of all ranks, in rank order: [n, ...] -> [q n, ...].

    The result is bitwise identical on all ranks.
    """
    if line is None or line.group.size == 1:
        return here(x)
    # weights are copied, because ZeRO-3 frees weights, and PyTorch cannot free memory that was shared with NumPy
    source = to_buffer(x.detach().clone() if isinstance(x, nn.Parameter) else x)
    joined = room((line.group.size * x.shape[0], *x.shape[1:]), like=x)
    work = line.group.all_gather(source.reshape(-1), joined.reshape(-1), channel=line.channel.describe(x.shape))
    return _begun(work, line, x, joined, source)


def scatter(x: Tensor, line: GridLine | None) -> Coming:
    """Sum over the ranks and return this rank's block of the sum: [q n, ...] -> [n, ...]."""
    if line is None or line.group.size == 1:
        return here(x)
    source, summed = to_buffer(x), room((x.shape[0] // line.group.size, *x.shape[1:]), like=x)
    work = line.group.reduce_scatter(source.reshape(-1), summed.reshape(-1), channel=line.channel.describe(x.shape))
    return _begun(work, line, x, summed, source)


def broadcast(x: Tensor, root: int, line: GridLine | None) -> Coming:
    """Broadcast the block of rank `root`. Blocks have the same shape on all ranks."""
    if line is None or line.group.size == 1:
        return here(x)
    # a copy, because the root also uses the decoded values, and its own block must not change
    buffer = to_buffer(x.clone()) if line.group.rank == root else room(x.shape, like=x)
    work = line.group.broadcast(buffer.reshape(-1), root, channel=line.channel.describe(x.shape))
    return _begun(work, line, x, buffer)


def reduce(x: Tensor, root: int, line: GridLine) -> Coming:
    """Sum over the ranks. Only the root receives the sum."""
    if line.group.size == 1:
        return here(x)
    source = to_buffer(x)
    summed = room(x.shape if line.group.rank == root else (0,), like=x)
    work = line.group.reduce(source.reshape(-1), summed.reshape(-1), root, channel=line.channel.describe(x.shape))
    return _begun(work, line, x, summed, source)


def _begun(work: Work, line: GridLine, like: Tensor, result: Buffer, source: Buffer = None) -> Coming:
    if line.overlap:
        work.in_background()

    def take() -> Tensor:
        _ = source  # must stay alive until the message has been sent
        return from_buffer(result, like)

    return Coming(work, take)
