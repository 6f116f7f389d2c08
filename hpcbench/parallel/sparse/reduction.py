"""Reduction of an embedding gradient that is sent as touched rows.

At stage 0, each replica sends its rows to all other replicas. With ZeRO, each row is sent only to the owners of its
values. The replicas first exchange their row counts, so they all select the same method. The replicas send the whole
gradient if it takes fewer bytes, or if measurements have shown that it is faster. Every replica adds rows in rank
order.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.parallel.buffers import room, to_buffer, to_tensor
from hpcbench.parallel.exact import gather
from hpcbench.parallel.pieces import Piece, Reduction
from hpcbench.parallel.sparse.add import Rows, add_rows
from hpcbench.parallel.sparse.switch import Counts, Ways, cut_rows
from hpcbench.parallel.sparse.touched import Index, Touched
from hpcbench.parallel.whole import start_sum


@dataclass
class Taken:
    """Statistics of the reductions of one replica."""

    reductions: int = 0
    by_rows: int = 0
    touched: int = 0
    """Number of rows touched by this replica, summed over reductions."""
    left: int = 0
    """Number of rows sent by this replica, counted once per receiver."""
    saved_bytes: int = 0
    """Number of bytes saved by all replicas together."""


class ByRows:
    """Reducer of the gradient of one embedding table.

    Parameters
    ----------
    touched
        Record of the touched rows.
    group
        Group of the replicas.
    channel
        Channel of gradients, whose codec also encodes rows.
    exact
        Channel without compression, used for counts and indices.
    always
        Whether rows are sent even if the whole gradient takes fewer bytes.

    Attributes
    ----------
    taken : Taken
        Statistics of past reductions.
    switch : float or None
        Measured density up to which rows are faster. If None, the method that sends fewer bytes is used.
    """

    def __init__(self, touched: Touched, *, group: Group, channel: Channel, exact: Channel, always: bool) -> None:
        self._touched, self._group = touched, group
        self._channel, self._exact, self._always = channel, exact, always
        self.taken = Taken()
        self.switch: float | None = None

    def begin(self) -> None:
        """Discard rows that were recorded in a step whose gradients are not used."""
        self._touched.forget()

    def ways(self, piece: Piece) -> Ways:
        """Return the two methods for the bucket of a piece."""
        (slot,), length = piece.bucket.slots, piece.bucket.values.numel()
        rows, width = slot.parameter.shape
        codec, dtype = self._channel.codec, self._travels_as(piece)
        wire_bytes = codec.wire_bytes(length, dtype) if codec.fixed_size else length * dtype.itemsize
        scattered = length > piece.gradient.numel()
        # residuals need the decoded values of the rank's own rows, which the sender receives only in a gather
        gathered = not scattered or self._channel.feedback
        return Ways(self._group.size, rows, width, length, wire_bytes, scattered, gathered)

    def _travels_as(self, piece: Piece) -> "np.dtype[np.generic]":
        wide = np.dtype(np.float64 if piece.bucket.wire_dtype is torch.float64 else np.float32)
        return self._channel.travels_as(wide)

    def start(self, piece: Piece, gradients: Tensor, divisor: float) -> Reduction | None:
        """Start to reduce a table gradient, divided by `divisor`. Return None if the whole gradient must be sent.

        This is a collective call, which waits for the row counts of all replicas.
        """
        ways, index = self.ways(piece), self._touched.take()
        counts = self.counted(ways, index)
        taken = self.taken
        taken.reductions += 1
        taken.touched += len(index)
        if not self.goes_by_rows(ways, counts):
            return None
        taken.by_rows += 1
        taken.left += ways.leaving(counts, self._group.rank)
        taken.saved_bytes += ways.whole_bytes - ways.rows_bytes(counts)
        return self.send(piece, gradients, index, divisor, counts)

    def goes_by_rows(self, ways: Ways, counts: Counts) -> bool:
        """Return whether a gradient with these row counts is sent as rows. All replicas return the same result."""
        if self._always:
            return True
        return ways.shorter_by_rows(counts) if self.switch is None else ways.density(counts) <= self.switch

    def counted(self, ways: Ways, index: Index) -> Counts:
        """Gather the row counts of all replicas, given the rows of this replica (a collective call)."""
        counts = [float(stop - start) for start, stop in _borders(ways, index)]
        return [list(map(round, row)) for row in gather(self._group, counts, self._exact)]

    def send_whole(self, piece: Piece, gradients: Tensor, divisor: float) -> Reduction:
        """Start to reduce a whole gradient, divided by `divisor` (a collective call)."""
        buffer = to_buffer(gradients)
        buffer /= divisor
        return start_sum(
            piece,
            buffer,
            self._group,
            self._channel,
            scattered=self.ways(piece).scattered,
            residuals=piece.feedback if self._channel.feedback else None,
        )

    def send(self, piece: Piece, gradients: Tensor, index: Index, divisor: float, counts: Counts) -> Reduction:
        """Start to reduce rows of a gradient, divided by `divisor` (a collective call).

        Parameters
        ----------
        piece, gradients
            Piece to reduce, and the whole gradient.
        index
            Touched rows of this replica.
        counts
            Row counts of all replicas, as returned by `counted`.
        """
        ways, group, rank = self.ways(piece), self._group, self._group.rank
        owned = cut_rows(ways.length, ways.replicas, ways.width)
        sent = np.concatenate([index[start:stop] for start, stop in _borders(ways, index)])
        values = _rows_of(gradients, ways, sent)
        values /= divisor
        residual = None
        if piece.feedback and self._channel.feedback:
            residual = to_tensor(piece.feedback.sent)[: ways.rows * ways.width].view(ways.rows, ways.width)
            values += residual[torch.from_numpy(sent).long().to(residual.device)]
        incoming = [row[0 if ways.gathered else rank] for row in counts]
        indices, came = np.empty(sum(incoming), np.int32), room((sum(incoming) * ways.width,), like=piece.bucket.values)
        source = to_buffer(values.view(-1))
        widely = [count * ways.width for count in incoming]
        if ways.gathered:
            knowing = group.all_gather_counts(sent, indices, incoming, channel=self._exact)
            work = group.all_gather_counts(source, came, widely, channel=self._channel)
        else:
            leaving = counts[rank]
            knowing = group.all_to_all(sent, indices, (leaving, incoming), channel=self._exact)
            going = [count * ways.width for count in leaving]
            work = group.all_to_all(source, came, (going, widely), channel=self._channel)
        mine = owned[rank] if ways.scattered else range(-(-ways.length // ways.width))
        in_place = not ways.scattered and gradients.dtype is piece.bucket.wire_dtype
        result, table = _home(piece, ways, gradients if in_place else None, mine)

        def complete() -> None:
            knowing.wait()
            arrived = to_tensor(came).view(-1, ways.width)
            starts = np.cumsum([0, *incoming])
            if residual is not None:
                there = torch.from_numpy(sent).long().to(residual.device)
                residual[there] = (values - arrived[starts[rank] : starts[rank + 1]]).to(residual.dtype)
            everyones = [_among(mine, indices[start:stop], arrived[start:stop]) for start, stop in pairwise(starts)]
            add_rows(table, everyones)

        return Reduction(result, work, source, complete)


def _borders(ways: Ways, index: Index) -> list[tuple[int, int]]:
    """Return the index ranges that are sent together: the whole index, or one range per owner of rows."""
    if ways.gathered:
        return [(0, len(index))]
    return [_within(index, rows) for rows in cut_rows(ways.length, ways.replicas, ways.width)]


def _within(index: Index, rows: range) -> tuple[int, int]:
    """Return the range of an ascending index whose rows are within `rows`."""
    start, stop = np.searchsorted(index, (rows.start, rows.stop))
    return int(start), int(stop)


def _rows_of(gradients: Tensor, ways: Ways, index: Index) -> Tensor:
    """Copy the rows in the dtype of the summation."""
    table = gradients[: ways.rows * ways.width].view(ways.rows, ways.width)
    chosen = table.index_select(0, torch.from_numpy(index).long().to(table.device))
    return to_tensor(to_buffer(chosen))


def _home(piece: Piece, ways: Ways, gradients: Tensor | None, mine: range) -> tuple[Tensor, Tensor]:
    """Return the tensors for the sums: the values that this rank owns, and the rows that contain these values."""
    if gradients is not None:
        return gradients, gradients[: ways.rows * ways.width].view(ways.rows, ways.width)
    table = to_tensor(room((len(mine) * ways.width,), like=piece.bucket.values)).zero_()
    first = piece.owned.start - mine.start * ways.width
    return table[first : first + piece.gradient.numel()], table.view(len(mine), ways.width)


def _among(mine: range, index: Index, values: Tensor) -> Rows:
    """Select the rows within `mine`, with their positions relative to the start of `mine`."""
    start, stop = _within(index, mine)
    places = torch.from_numpy(index[start:stop] - mine.start).long()
    return Rows(places.to(values.device), values[start:stop])
